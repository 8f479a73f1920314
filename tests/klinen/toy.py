"""Small models for the tests.

Layers are 8 wide throughout: compiling the initialiser of another shape takes longer
than most tests.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import klinen as knn

X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), jnp.float32)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _lecun_normal(key, shape, dtype):
    return nn.initializers.lecun_normal()(key, shape, dtype)


def kernel_init(key, shape, dtype=jnp.float32):
    """What flax does by default, traced once: flax does it again in each call."""
    return _lecun_normal(key, shape, dtype)


Dense = functools.partial(nn.Dense, kernel_init=kernel_init)


class MLP(knn.Module):
    """Two layers with dropout between them."""

    features: int = 8
    rate: float = 0.5

    @nn.compact
    def __call__(self, x):
        x = nn.relu(Dense(self.features)(x))
        x = nn.Dropout(self.rate)(x, deterministic=not self.training)
        return Dense(8)(x)


class AutoEncoder(knn.Module):
    """Two parts, one after the other."""

    encoder: nn.Module
    decoder: nn.Module

    def __call__(self, x):
        return self.decoder(self.encoder(x))


class SetupNet(knn.Module):
    """Makes its parts, and other things, in `setup`."""

    width: int = 8

    def setup(self):
        self.scale = self.param("scale", nn.initializers.ones, ())
        self.trunk = MLP(self.width)
        self.heads = [Dense(8), MLP()]
        self.factor = 2.0

    def __call__(self, x):
        x = self.scale * self.trunk(x)
        return self.heads[1](x) + self.factor * self.heads[0](x).sum()


class Normed(knn.Module):
    """Batch normalisation with running statistics, and a counter of calls."""

    @nn.compact
    def __call__(self, x):
        count = self.variable("counts", "calls", lambda: jnp.zeros((), jnp.int32))
        count.value += 1
        x = Dense(8)(x)
        return nn.BatchNorm(use_running_average=not self.training, momentum=0.5)(x)


@functools.cache
def auto_encoder(seed: int = 0):
    """A bound auto-encoder with dropout; like all models it never changes."""
    return AutoEncoder(encoder=MLP(), decoder=MLP(rate=0.25)).init_bind(seed, X)


def assert_same(a, b):
    """Same structure, same values to the last bit."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def assert_close(a, b):
    """Same structure, same values up to rounding."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=1e-6)


def differ(a, b):
    """Whether two arrays have different values."""
    return not np.array_equal(np.asarray(a), np.asarray(b))
