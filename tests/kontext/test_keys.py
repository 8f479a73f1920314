"""From keys to values."""

import dataclasses
import pickle
import sys
from typing import Any

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kontext
from kauldron.kontext import (
    Key,
    KeyTree,
    MissingKeysError,
    resolve_from_keyed_obj,
    resolve_from_keypaths,
)


@flax.struct.dataclass
class Context:
    """A context of which parts are filled step by step."""

    step: Any
    batch: Any
    params: Any = None
    preds: Any = None
    interms: Any = None
    loss_total: Any = None
    grads: Any = None

    def __kontext_unfilled__(self):
        when = {
            "params": "it is available after the model was initialised",
            "preds": "it is available after the model was applied",
            "grads": "it is available only in train steps",
        }
        return {
            name: text for name, text in when.items() if getattr(self, name) is None
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class L2:
    preds: Key = kontext.REQUIRED
    targets: Key = kontext.REQUIRED
    mask: Key | None = None

    def get_state(self, preds, targets, mask=None):
        return preds, targets, mask


@dataclasses.dataclass
class Camera:
    pos: Any


def _error(function, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        function(*args, **kwargs)
    return caught.value


# ------------------------------------------------------------------------------------
# What is found
# ------------------------------------------------------------------------------------


class AutoEncoder(nn.Module):
    input: Key = kontext.REQUIRED

    def __call__(self, input):
        return {"image": input * 2}


def test_model_and_loss_get_exactly_the_arguments_that_their_keys_name():
    batch = {"image": jnp.ones(3)}
    model = AutoEncoder(input="batch.image")
    inputs = resolve_from_keyed_obj(Context(0, batch), model, func=model.__call__)
    assert list(inputs) == ["input"]
    assert inputs["input"] is batch["image"]
    preds = model.apply({}, **inputs)
    context = Context(0, batch, preds=preds)
    loss = L2(preds="preds.image", targets="batch.image")
    arguments = resolve_from_keyed_obj(context, loss, func=loss.get_state)
    assert set(arguments) == {"preds", "targets"}
    assert arguments["preds"] is preds["image"]
    assert arguments["targets"] is batch["image"]


def test_path_goes_through_dict_list_and_dataclass():
    context = {"preds": {"cameras": [Camera(pos=5)]}}
    assert resolve_from_keypaths(context, "preds.cameras[0].pos") == 5


def test_all_parts_of_a_context_can_be_named():
    context = Context(
        step=3,
        batch={},
        params={"enc": {"w": 1}},
        interms={"enc": {"__call__": (2,)}},
        loss_total=0.5,
    )
    paths = {"a": "params.enc.w", "b": "interms.enc.__call__[0]", "c": "loss_total"}
    assert resolve_from_keypaths(context, paths | {"d": "step"}) == {
        "a": 1,
        "b": 2,
        "c": 0.5,
        "d": 3,
    }


def test_none_keys_are_left_out():
    loss = L2(preds="a", targets="b", mask=None)
    assert resolve_from_keyed_obj({"a": 1, "b": 2}, loss) == {"preds": 1, "targets": 2}


@flax.struct.dataclass
class Rays:
    origin: Any
    direction: Any = None


class Trees:
    pair: Key = ("b.left", "b.right")
    named: dict[str, Key] = {"x": "b.left", "y": None, "z": ["b.right"]}
    rays: KeyTree[Rays] = Rays(origin=("b.left", "b.right"))


def test_trees_of_paths_give_trees_of_values():
    assert resolve_from_keyed_obj({"b": {"left": 1, "right": 2}}, Trees()) == {
        "pair": (1, 2),
        "named": {"x": 1, "y": None, "z": [2]},
        "rays": Rays(origin=(1, 2)),
    }


def test_every_form_of_a_path_is_a_key():
    class Forms:
        text: Key = "batch.x[0]"
        path: Key = kontext.Path("batch", "x", 0)
        builder: Key = kontext.path_builder_from("batch", Any).x[0]

    resolved = resolve_from_keyed_obj({"batch": {"x": [5]}}, Forms())
    assert resolved == {"text": 5, "path": 5, "builder": 5}


def test_empty_path_is_the_whole_context():
    context = {"a": 1}
    assert resolve_from_keypaths(context, "") is context


def test_none_inside_the_batch_is_passed_on():
    context = Context(0, {"mask": None})
    assert resolve_from_keypaths(context, {"mask": "batch.mask"}) == {"mask": None}


def test_shape_structs_resolve_without_a_device():
    struct = jax.ShapeDtypeStruct((8, 4), jnp.float32)
    context = Context(0, {"image": struct})
    key_paths = {"whole": "batch.image", "first": "batch.image[0]"}
    with jax.transfer_guard("disallow_explicit"):
        resolved = resolve_from_keypaths(context, key_paths)
    assert resolved["whole"] is struct
    assert resolved["first"].shape == (4,)


# ------------------------------------------------------------------------------------
# What is not set, or does not fit
# ------------------------------------------------------------------------------------


def test_unset_required_keys_are_named_also_inside_of_trees():
    class Views:
        image: Key = kontext.REQUIRED
        views: dict[str, Key] = {"left": kontext.REQUIRED, "right": ["a"]}
        mask: Key = "also missing"

    error = _error(resolve_from_keyed_obj, {}, Views())
    assert isinstance(error, ValueError)
    assert str(error).startswith("Error for Views: required keys are not set: ")
    assert "image, views.left." in str(error)


def test_key_field_without_value_is_required():
    class NoDefault:
        x: Key

    with pytest.raises(ValueError, match="required keys are not set: x"):
        resolve_from_keyed_obj({}, NoDefault())


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (lambda preds: 0, "no arguments for the keys: targets"),
        (lambda preds, targets, other: 0, "No key is given for the arguments: other"),
        (lambda preds, target: 0, "No key is given for the arguments: target. The"),
        (lambda preds, targets, /: 0, "Positional-only"),
        (lambda *preds: 0, "no arguments for the keys: preds, targets"),
    ],
)
def test_names_that_do_not_fit_the_function_are_a_type_error(function, hint):
    loss = L2(preds="a", targets="b")
    error = _error(resolve_from_keyed_obj, {"a": 1, "b": 2}, loss, func=function)
    assert isinstance(error, TypeError)
    assert "Error for L2: the signature does not match" in str(error)
    assert "Signature: " in str(error)
    assert "(preds" in str(error) or "(*preds" in str(error)
    assert "Provided keys: preds, targets" in str(error)
    assert hint in str(error)


@pytest.mark.parametrize(
    "function",
    [lambda preds, targets, mask=None: 0, lambda **kwargs: 0, min, dict],
)
def test_defaults_and_keyword_arguments_fit(function):
    loss = L2(preds="a", targets="b")
    resolved = resolve_from_keyed_obj({"a": 1, "b": 2}, loss, func=function)
    assert resolved == {"preds": 1, "targets": 2}


def test_malformed_key_is_a_syntax_error_naming_object_and_key():
    error = _error(resolve_from_keyed_obj, {}, L2(preds="a..b", targets="b"))
    assert isinstance(error, kontext.PathSyntaxError)
    assert str(error).startswith("Error for L2: key 'preds': Invalid path, column 3")


def test_wildcard_in_a_plain_key_is_a_value_error():
    error = _error(resolve_from_keyed_obj, {}, L2(preds="params.**.w", targets="b"))
    assert isinstance(error, ValueError)
    assert "Error for L2: key 'preds': 'params.**.w' has the wildcard" in str(error)
    assert "TreeMap" in str(error)


def test_key_that_is_no_path_is_a_type_error():
    error = _error(resolve_from_keyed_obj, {}, L2(preds=5, targets="b"))
    assert isinstance(error, TypeError)
    assert "Error for L2: key 'preds': 5 (int) is not a path" in str(error)


def test_error_inside_a_property_is_unchanged_but_noted():
    class Broken:
        @property
        def x(self):
            raise AttributeError("the user's own mistake")

    error = _error(
        resolve_from_keyed_obj, {"o": Broken()}, L2(preds="o.x", targets="o")
    )
    assert type(error) is AttributeError
    assert str(error) == "the user's own mistake"
    assert error.__notes__ == ["Error for L2: while reading 'o.x'."]


# ------------------------------------------------------------------------------------
# What is missing
# ------------------------------------------------------------------------------------


def test_all_missing_keys_are_in_one_error_with_line_breaks():
    context = {"batch": {"image": np.zeros((8, 3), np.float32), "label": 1}, "step": 0}
    error = _error(
        resolve_from_keyed_obj,
        context,
        L2(preds="batch.imag", targets="prediction", mask="step"),
    )
    assert isinstance(error, KeyError)
    assert isinstance(error, MissingKeysError)
    assert error.names == ["preds", "targets"]
    assert str(error).splitlines() == [
        "Error for L2: Invalid keys, which lead nowhere in the context:",
        "- preds = 'batch.imag'",
        "    'batch' (dict) has no 'imag'.",
        "    Available: image: float32[8,3], label: int",
        "    Did you mean: 'batch.image'?",
        "- targets = 'prediction'",
        "    The context has no `prediction`. Paths start with one of: batch, step",
    ]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("image", "'batch.image'"),
        ("preds.image", "'batch.image'"),
        ("batch.pose.x", "'batch.cams[0].pose.x'"),
        ("batch.cams[0].poss.x", "'batch.cams[0].pose'"),
        ("butch.image", "'batch', 'batch.image'"),
    ],
)
def test_nearest_paths_are_suggested(path, suggestion):
    batch = {"image": 1, "cams": [{"pose": {"x": 1}}]}
    context = Context(0, batch, preds={"other": 1})
    error = _error(resolve_from_keypaths, context, path)
    assert f"Did you mean: {suggestion}" in str(error)


def test_at_most_three_suggestions():
    context = {f"part{i}": {"x": 1} for i in range(10)}
    error = _error(resolve_from_keypaths, context, "x")
    assert "Did you mean: 'part0.x', 'part1.x', 'part2.x'?" in str(error)


@pytest.mark.parametrize("path", ["grads", "grads.enc.w", "grads[0]"])
def test_field_that_is_not_filled_yet_is_missing(path):
    error = _error(resolve_from_keypaths, Context(0, {}), {"x": path})
    assert isinstance(error, KeyError)
    assert "`grads` is empty here: it is available only in train steps." in str(error)


def test_glob_key_of_an_unfilled_field_is_missing():
    glob = kontext.GlobPath.from_str("grads.**.bias")
    with pytest.raises(KeyError, match="`grads` is empty here"):
        resolve_from_keypaths(Context(0, {}), glob.first_non_glob_parent)


def test_unfilled_field_can_be_read_once_it_is_filled():
    context = Context(0, {}, grads={"w": 1})
    assert resolve_from_keypaths(context, "grads.w") == 1


def test_index_out_of_range_tells_the_length():
    error = _error(resolve_from_keypaths, {"a": [1, 2]}, {"x": "a[5]"})
    assert "'a' (list of length 2) has no [5]" in str(error)


@pytest.mark.parametrize("shape", ["flat", "nested"])
def test_missing_key_is_cheap_in_a_large_context(shape):
    if shape == "flat":
        params = {f"layer_{i}_kernel": i for i in range(10_000)}
    else:
        params = {
            f"layer_{i}": {f"block_{j}": {"w": j, "b": j} for j in range(50)}
            for i in range(100)
        }
    context = Context(0, {"image": 1}, params=params)
    loss = L2(preds="batch.image", targets="params.layer_5_kernl.w")
    visited = _count_calls(lambda: _error(resolve_from_keyed_obj, context, loss))
    assert visited < 100_000


def _count_calls(function):
    """Number of Python calls: unlike time, the same on every machine."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_field_that_is_not_annotated_as_key_is_told():
    class Metric:
        x: str = "batch.x"

        def __call__(self, x):
            return x

    metric = Metric()
    message = "No key is given for the arguments: x. The field 'x' holds a text, but is"
    with pytest.raises(TypeError, match=message):
        kontext.resolve_from_keyed_obj(
            {"batch": {"x": 1}}, metric, func=metric.__call__
        )
