import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kauldron import random as kd_random
from kauldron.data.engine import keys

SEEDS = st.integers(-(2**33), 2**33)
WORDS = st.integers(0, 2**32 - 1)


@given(seed=SEEDS)
def test_key_of_a_seed_is_that_of_jax(seed):
    expected = jax.random.PRNGKey(np.uint32(seed % 2**32))
    assert keys.prng_key(seed) == tuple(np.asarray(expected).tolist())


@given(seed=SEEDS, data=WORDS)
def test_fold_in_and_bits_are_those_of_jax(seed, data):
    jax_key = jax.random.fold_in(jax.random.PRNGKey(np.uint32(seed % 2**32)), data)
    key = keys.fold_in(keys.prng_key(seed), data)
    assert key == tuple(np.asarray(jax_key).tolist())
    assert keys.bits(key) == int(jax.random.bits(jax_key))


def test_fold_in_str_is_that_of_kd_random():
    expected = kd_random.PRNGKey(7).fold_in("shuffle").rng
    key = keys.fold_in_str(keys.prng_key(7), "shuffle")
    assert key == tuple(np.asarray(expected).tolist())
