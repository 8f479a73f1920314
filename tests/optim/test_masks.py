"""Masks over parameters, chosen by path."""

import dataclasses
import pickle
from typing import Any, NamedTuple

import flax.struct
import hypothesis
import jax
import jax.numpy as jnp
import pytest
from hypothesis import strategies as st

from kauldron import kd, kontext
from kauldron.immutabledict import ImmutableDict

select, exclude = kd.optim.select, kd.optim.exclude


class Pair(NamedTuple):
    lora: Any
    other: Any


@flax.struct.dataclass
class Struct:
    lora: Any
    other: Any


def nested(*paths):
    """A nested dict with a leaf at each dotted path."""
    tree = {}
    for path in paths:
        *parents, last = path.split(".")
        node = tree
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = 0.0
    return tree


def selected(mask, *paths):
    """Those of the paths that the mask selects."""
    leaves = jax.tree_util.tree_leaves_with_path(mask(nested(*paths)))
    return {".".join(key.key for key in path) for path, value in leaves if value}


def test_leaves_below_a_matching_segment():
    paths = ("a.lora.x", "a.lora.y.z", "lora.w", "a.other", "b.x")
    assert selected(select("lora"), *paths) == {"a.lora.x", "a.lora.y.z", "lora.w"}


def test_part_of_a_segment_does_not_match():
    paths = ("loraX.a", "notlora.a", "a.lora_b", "a.lora")
    assert selected(select("lora"), *paths) == {"a.lora"}


def test_dotted_pattern_matches_consecutive_segments_anywhere():
    paths = ("enc.lora.w", "x.enc.lora.w", "enc.x.lora", "encXlora.w", "lora.enc")
    assert selected(select("enc.lora"), *paths) == {"enc.lora.w", "x.enc.lora.w"}


def test_alternatives_match_whole_segments():
    paths = ("a.x", "abc.x", "new.x", "w.x", "x.a", "x.aw")
    assert selected(select("a|w"), *paths) == {"a.x", "w.x", "x.a"}


def test_regular_expressions():
    paths = ("layers.0.kernel", "layers.1.kernel", "layers.10.kernel", "head.kernel")
    assert selected(select(r"layers\.[01]"), *paths) == set(paths[:2])
    assert selected(select(r"layers\.\d+"), *paths) == set(paths[:3])
    assert selected(select("layers.*kernel"), *paths) == set(paths[:3])


def test_anchors_bind_to_the_whole_path():
    paths = ("decoder.kernel", "x.decoder.kernel", "kernel.decoder")
    assert selected(select("^decoder"), *paths) == {"decoder.kernel"}
    assert selected(select("decoder$"), *paths) == {"kernel.decoder"}
    assert selected(select("^decoder.kernel$"), *paths) == {"decoder.kernel"}


def test_literal_pattern_with_odd_characters():
    paths = ("a.w-1{2}", "a.w-1")
    assert selected(select("w-1{2}"), *paths) == {"a.w-1{2}"}


def test_several_patterns_select_the_union():
    paths = ("a.x", "b.x", "c.x")
    assert selected(select(["a", "c"]), *paths) == {"a.x", "c.x"}
    assert selected(exclude(("a", "^c")), *paths) == {"b.x"}


@pytest.mark.parametrize("pattern", ["", [], (), ["a", ""]])
def test_nothing_to_match_is_refused(pattern):
    with pytest.raises(ValueError, match="No pattern"):
        select(pattern)


@pytest.mark.parametrize("pattern", ["a(", "[", "*a", ["a", "(b"]])
def test_invalid_expression_is_refused_at_once(pattern):
    bad = pattern if isinstance(pattern, str) else pattern[-1]
    with pytest.raises(ValueError) as info:
        select(pattern)
    assert repr(bad) in str(info.value)


def test_other_types_of_pattern_are_refused():
    with pytest.raises(TypeError, match="not int"):
        select(["a", 1])


TREES = [
    {"a": [1, {"lora": 2}], "lora": (3, 4)},
    Pair(lora=1, other={"lora": 2, "x": 3}),
    Struct(lora=[1, 2], other=(3, None)),
    ImmutableDict(b=1, lora=ImmutableDict(x=2)),
    [{"lora": 1.0}, {"other": jnp.ones(2)}],
    {"lora": None, "x": {}},
]


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: type(tree).__name__)
def test_mask_has_the_structure_of_the_tree_and_exclude_negates(tree):
    mask = select("lora")(tree)
    assert jax.tree.structure(mask) == jax.tree.structure(tree)
    leaves = jax.tree.leaves(mask)
    assert all(type(leaf) is bool for leaf in leaves)
    assert jax.tree.leaves(exclude("lora")(tree)) == [not leaf for leaf in leaves]


def test_paths_through_containers():
    tree = {"layers": [{"w": 0}, {"w": 0}], "pair": Pair(0, 0), "struct": Struct(0, 0)}
    assert select("layers.1.w")(tree)["layers"] == [{"w": False}, {"w": True}]
    assert select("pair.lora")(tree)["pair"] == Pair(True, False)
    assert select("struct.other")(tree)["struct"] == Struct(False, True)


def test_keys_with_dots_integer_keys_and_mixed_keys():
    assert select("a.b")({"a.b": 1, "c": 2}) == {"a.b": True, "c": False}
    assert select("3")({3: 1, 4: 2}) == {3: True, 4: False}
    assert select("3.w")({3: {"w": 1}, "w": 2}) == {3: {"w": True}, "w": False}


def test_key_without_text_is_refused():
    @dataclasses.dataclass(frozen=True)
    class OddKey:
        x: int

    class Odd:
        pass

    jax.tree_util.register_pytree_with_keys(
        Odd, lambda odd: (((OddKey(0), 1),), None), lambda _, children: Odd()
    )
    with pytest.raises(TypeError, match="OddKey"):
        select("a")({"a": Odd()})


def test_masks_are_values():
    assert repr(select("lora")) == "select('lora')"
    assert repr(exclude(["a", "b"])) == "exclude(['a', 'b'])"
    assert select("a") == select(["a"])
    assert select("a") != exclude("a")
    assert len({select("a"), select("a"), select("b")}) == 2
    mask = pickle.loads(pickle.dumps(exclude(r"a\.b")))
    assert mask == exclude(r"a\.b")
    assert mask({"a": {"b": 1}}) == {"a": {"b": False}}


_SEGMENT = st.text(alphabet="abc", min_size=1, max_size=3)
_PATHS = st.lists(_SEGMENT, min_size=1, max_size=4)


@hypothesis.given(_PATHS, _PATHS)
def test_literal_match_is_that_of_segments(path, pattern):
    expected = any(
        path[i : i + len(pattern)] == pattern
        for i in range(len(path) - len(pattern) + 1)
    )
    tree = 0.0
    for name in reversed(path):
        tree = {name: tree}
    assert jax.tree.leaves(select(".".join(pattern))(tree)) == [expected]
    escaped = r"\.".join(pattern) + "()"  # the same as a regular expression
    assert jax.tree.leaves(select(escaped)(tree)) == [expected]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**.bias", {"enc.bias", "enc.a.bias", "enc.a.b.bias", "bias"}),
        ("enc.**.bias", {"enc.bias", "enc.a.bias", "enc.a.b.bias"}),
        ("enc.*.**.bias", {"enc.a.bias", "enc.a.b.bias"}),
        ("enc.**", {"enc.bias", "enc.a.bias", "enc.a.b.bias", "enc.a.kernel"}),
        ("**.k*", {"enc.a.kernel"}),
        ("**", {"enc.bias", "enc.a.bias", "enc.a.b.bias", "enc.a.kernel", "bias"}),
        ("nothing.**.bias", set()),
    ],
)
def test_two_stars_make_a_glob_over_segments(pattern, expected):
    params = {
        "enc": {"bias": 0, "a": {"bias": 0, "kernel": 0, "b": {"bias": 0}}},
        "bias": 0,
    }
    mask = kontext.flatten_with_path(kd.optim.select(pattern)(params))
    assert {path for path, is_selected in mask.items() if is_selected} == expected
