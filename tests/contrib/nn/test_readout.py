"""Readout heads on a model."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd, kontext

X = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)


class Encoder(nn.Module):
    """A model with one layer."""

    image: kontext.Key = "batch.image"

    @nn.compact
    def __call__(self, image):
        return {"h": nn.Dense(4, name="encoder")(image)}


def _wrap(inputs="interms.model.encoder.__call__[0]", **kwargs):
    return kd.contrib.nn.ReadoutWrapper(
        **{
            "model": Encoder(),
            "readout_heads": {"cls": nn.Dense(3, name="readout_head")},
            "readout_inputs": {"cls": {"inputs": inputs}},
            **kwargs,
        }
    )


def _init(model, **inputs):
    init = jax.jit(functools.partial(model.init, capture_intermediates=True))
    return init(jax.random.key(0), **(inputs or {"model_image": X}))


@pytest.fixture(scope="module")
def variables():
    """Those of `_wrap()`, whatever it reads."""
    return _init(_wrap())


def _apply(model, variables, x=X):
    run = functools.partial(model.apply, capture_intermediates=True, mutable=True)
    return jax.jit(run)({"params": variables["params"]}, model_image=x)


def test_names_of_parameters_keys_results_and_intermediates(variables):
    model = _wrap()
    assert kontext.get_keypaths(model) == {"model_image": "batch.image"}
    assert jax.tree.map(jnp.shape, variables["params"]) == {
        "model": {"encoder": {"kernel": (5, 4), "bias": (4,)}},
        "readout_heads_cls": {"kernel": (4, 3), "bias": (3,)},
    }
    result, changed = jax.device_get(_apply(model, variables))
    head = jax.device_get(variables["params"]["readout_heads_cls"])
    np.testing.assert_allclose(
        result["readouts"]["cls"],
        result["h"] @ head["kernel"] + head["bias"],
        rtol=1e-6,
    )
    interms = changed["intermediates"]
    np.testing.assert_array_equal(
        interms["model"]["encoder"]["__call__"][0], result["h"]
    )
    assert "__call__" in interms["readout_heads_cls"]


def test_inputs_of_preds_need_no_intermediates():
    model = _wrap("preds.h")
    key = jax.random.key(0)
    variables = jax.eval_shape(lambda: model.init(key, model_image=X))
    result = jax.eval_shape(lambda v: model.apply(v, model_image=X), variables)
    assert result["readouts"]["cls"].shape == (3, 3)


def test_missing_intermediates_are_explained():
    with pytest.raises(KeyError, match="capture_intermediates=True"):
        jax.eval_shape(lambda: _wrap().init(jax.random.key(0), model_image=X))


def test_values_of_an_earlier_call_are_not_read(variables):
    model = _wrap()
    fresh, _ = _apply(model, variables, 2 * X)
    stale, _ = model.apply(  # with the intermediates of `init`
        variables, model_image=2 * X, capture_intermediates=True, mutable=True
    )
    np.testing.assert_array_equal(fresh["readouts"]["cls"], stale["readouts"]["cls"])
    with pytest.raises(KeyError, match="capture_intermediates=True"):
        model.apply(variables, model_image=2 * X)


@pytest.mark.parametrize("finetune", [False, True])
def test_heads_train_the_model_only_when_it_is_finetuned(finetune, variables):
    model = _wrap("preds.h", finetune=finetune)
    params = variables["params"]

    def loss(params):
        return model.apply({"params": params}, model_image=X)["readouts"]["cls"].sum()

    grads = jax.jit(jax.grad(loss))(params)
    assert np.any(grads["model"]["encoder"]["kernel"]) == finetune
    assert np.any(grads["readout_heads_cls"]["kernel"])


def test_external_inputs_are_keys_of_the_wrapper():
    class Joined(nn.Module):
        a: kontext.Key = "preds.h"
        b: kontext.Key = "batch.extra"

        @nn.compact
        def __call__(self, a, b):
            return nn.Dense(2)(jnp.concatenate([a, b], axis=-1))

    model = _wrap(
        readout_heads={"x": Joined(), "x_y": Joined()},
        readout_inputs={"x_y": {"a": "preds.h", "b": "batch.other"}},
    )
    assert kontext.get_keypaths(model) == {
        "model_image": "batch.image",
        "readout_x_b": "batch.extra",
        "readout_x_y_b": "batch.other",
    }
    inputs = {"model_image": X, "readout_x_b": X, "readout_x_y_b": X[:, :2]}
    params = jax.eval_shape(lambda: _init(model, **inputs))["params"]
    assert params["readout_heads_x"]["Dense_0"]["kernel"].shape == (9, 2)
    assert params["readout_heads_x_y"]["Dense_0"]["kernel"].shape == (6, 2)


def test_model_inputs_replace_the_keys_of_the_model():
    model = _wrap(model_inputs={"image": "batch.picture"})
    assert kontext.get_keypaths(model) == {"model_image": "batch.picture"}


@pytest.mark.parametrize("result", ["an array", "reserved"])
def test_result_of_the_model_must_be_a_dict_without_readouts(result):
    class Bad(nn.Module):
        image: kontext.Key = "batch.image"

        def __call__(self, image):
            return image if result == "an array" else {"readouts": image}

    with pytest.raises(ValueError, match=r"dict|'readouts'"):
        _init(_wrap("batch.image", model=Bad()))


def test_mistakes_name_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'cls'"):
        _wrap(readout_inputs={"clss": None})
    with pytest.raises(KeyError, match=r"interms\.model\.encoder\.__call__"):
        _init(_wrap("interms.model.encode.__call__[0]"))
    with pytest.raises(ValueError, match="model_inputs="):
        kontext.get_keypaths(_wrap(model=nn.Dense(3)))


def test_wrapper_can_be_hashed_and_compared():
    inputs = {"image": "batch.image"}
    assert hash(_wrap(model_inputs=inputs)) == hash(_wrap(model_inputs=inputs))
    assert _wrap() == _wrap() != _wrap("preds.h")
