"""Strings folded into keys, seeds out of keys, and the mirror of jax.random."""

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from kauldron import random as kd_random
from kauldron.random import PRNGKey, fold_in_str, random_seed

RAW = jax.random.PRNGKey(0)


def test_folding_a_string_gives_the_documented_key():
    folded = fold_in_str(jnp.zeros(2, jnp.uint32), "param")
    assert folded.tolist() == [3377459867, 191051718]


# Of a few characters of every kind: for all of them, a table is made first.
TEXTS = st.text("ab\0\n é漢😀")


@hypothesis.given(TEXTS, TEXTS)
def test_different_strings_give_different_keys(a, b):
    same = np.array_equal(PRNGKey(0).fold_in(a), PRNGKey(0).fold_in(b))
    assert same == (a == b)


@pytest.mark.parametrize("key", [RAW, jax.random.key(0), PRNGKey(0)])
def test_folding_keeps_the_kind_of_key(key):
    folded = fold_in_str(key, "a")
    assert type(folded) is type(key)
    assert folded.dtype == key.dtype


def test_folding_works_in_jit():
    jitted = jax.jit(lambda key: fold_in_str(key, "a"))
    np.testing.assert_array_equal(jitted(RAW), fold_in_str(RAW, "a"))


def test_folding_something_else_is_refused():
    with pytest.raises(TypeError, match="not int"):
        fold_in_str(RAW, 3)


@pytest.mark.parametrize("key", [RAW, jax.random.key(0), PRNGKey(0)])
def test_random_seed_is_the_bits_of_the_key(key):
    seed = random_seed(key)
    assert type(seed) is int
    assert seed == int(jax.random.bits(RAW))
    assert 0 <= seed < 2**32


def test_as_seed_of_a_key():
    assert PRNGKey(3).as_seed() == random_seed(jax.random.PRNGKey(3))


def test_random_seed_of_a_traced_key_is_refused():
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(random_seed)(RAW)


def test_mirrored_function_takes_both_kinds_of_key():
    expected = jax.random.normal(RAW, (2,))
    np.testing.assert_array_equal(kd_random.normal(RAW, (2,)), expected)
    np.testing.assert_array_equal(kd_random.normal(PRNGKey(0), (2,)), expected)
    np.testing.assert_array_equal(kd_random.normal(key=PRNGKey(0), shape=2), expected)


def test_mirrored_function_wraps_key_results_only_for_a_wrapper():
    assert isinstance(kd_random.split(PRNGKey(0)), PRNGKey)
    assert isinstance(kd_random.split(key=PRNGKey(0)), PRNGKey)
    assert isinstance(kd_random.split(RAW), jax.Array)
    assert isinstance(kd_random.uniform(PRNGKey(0)), jax.Array)


def test_mirror_lists_and_refuses_names():
    assert {"PRNGKey", "fold_in_str", "normal"} <= set(dir(kd_random))
    assert all(callable(getattr(kd_random, name)) for name in dir(kd_random))
    with pytest.raises(AttributeError, match="nonsense"):
        kd_random.nonsense
