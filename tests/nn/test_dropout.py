"""Dropout follows the training mode."""

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd

X = jnp.ones((50, 10))
RNGS = {"dropout": jax.random.PRNGKey(1)}


def _train(model, **kwargs):
    return model.apply({}, X, is_training_property=True, **kwargs)


def test_training_zeroes_a_part_and_scales_the_rest():
    out = _train(kd.nn.Dropout(0.5), rngs=RNGS)
    assert set(np.unique(out)) == {0.0, 2.0}


def test_same_numbers_as_flax():
    plain = nn.Dropout(0.3, deterministic=False).apply({}, X, rngs=RNGS)
    np.testing.assert_array_equal(_train(kd.nn.Dropout(0.3), rngs=RNGS), plain)


def test_evaluation_is_the_identity_and_needs_no_rng():
    out = kd.nn.Dropout(0.5).apply({}, X, is_training_property=False)
    np.testing.assert_array_equal(out, X)


def test_rate_zero_needs_no_rng():
    np.testing.assert_array_equal(_train(kd.nn.Dropout(0.0)), X)


def test_training_without_rng():
    with pytest.raises(flax.errors.InvalidRngError):
        _train(kd.nn.Dropout(0.5))


def test_without_mode():
    with pytest.raises(ValueError, match="set_train_property"):
        kd.nn.Dropout(0.5).apply({}, X, rngs=RNGS)


def test_deterministic_is_refused():
    with pytest.raises(ValueError, match=r"Dropout\(deterministic=.*train property"):
        kd.nn.Dropout(0.5, deterministic=True)


def test_rng_collection_and_broadcast_dims():
    model = kd.nn.Dropout(0.5, broadcast_dims=(0,), rng_collection="noise")
    out = _train(model, rngs={"noise": jax.random.PRNGKey(0)})
    np.testing.assert_array_equal(out, jnp.broadcast_to(out[:1], out.shape))


@pytest.mark.parametrize(
    "rng", [jax.random.PRNGKey(7), jax.random.key(7), kd.random.PRNGKey(7)]
)
def test_explicit_rng_of_any_kind(rng):
    expected = nn.Dropout(0.5, deterministic=False).apply(
        {}, X, rng=jax.random.PRNGKey(7)
    )
    np.testing.assert_array_equal(_train(kd.nn.Dropout(0.5), rng=rng), expected)


def test_documented_model_initialises_and_applies():
    class MyModel(nn.Module):
        is_training = kd.nn.train_property()

        @nn.compact
        def __call__(self, x):
            if self.is_training:
                x = x + jax.random.normal(self.make_rng("default"), x.shape)
            return kd.nn.Dropout(0.5)(nn.Dense(4)(x))

    keys = {name: jax.random.PRNGKey(i) for i, name in enumerate(("params", "default"))}
    params = MyModel().init(keys | RNGS, X, is_training_property=True)
    out = MyModel().apply(params, X, is_training_property=False)
    expected = nn.Dense(4).apply({"params": params["params"]["Dense_0"]}, X)
    np.testing.assert_array_equal(out, expected)
