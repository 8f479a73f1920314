"""Keys and integers as floats."""

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kauldron.klinen.coded_leaves import CodedTree


def _round_trip(value, change=lambda code: code):
    coded = CodedTree({"leaf": value})
    codes = jax.tree.map(change, coded.codes())
    return codes["leaf"], CodedTree(codes=codes, forms=coded.forms).values()["leaf"]


@hypothesis.given(
    hnp.arrays(
        st.sampled_from(
            ["int8", "uint8", "int16", "uint16", "int32", "uint32", "bool"]
        ),
        hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=2),
    ),
    st.sampled_from(["float32", "bfloat16", "float16"]),
)
@hypothesis.settings(max_examples=20)
def test_every_integer_survives_in_every_float_dtype(value, dtype):
    code, back = _round_trip(jnp.asarray(value), lambda code: code.astype(dtype))
    assert code.dtype == dtype
    assert not np.isnan(np.asarray(code, np.float32)).any()
    assert back.dtype == value.dtype
    np.testing.assert_array_equal(back, value)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_typed_keys_keep_their_generator(impl):
    key = jax.random.key(3, impl=impl)
    code, back = _round_trip(key)
    assert code.dtype == jnp.float32
    assert jax.random.key_impl(back) == jax.random.key_impl(key)
    np.testing.assert_array_equal(jax.random.key_data(back), jax.random.key_data(key))


def test_floats_and_other_things_stay_as_they_are():
    tree = {"a": jnp.ones(2), "b": np.zeros(1, np.float64), "c": "text", "d": 1.5}
    coded = CodedTree(tree)
    assert coded.codes() is tree
    assert coded.values() is tree


def test_python_integers_become_arrays():
    _, back = _round_trip(7)
    assert back.dtype == jnp.int32 and back == 7
    _, back = _round_trip(True)
    assert back.dtype == jnp.bool_ and back


def test_noise_below_half_a_step_is_rounded_away():
    key = jax.random.PRNGKey(7)
    _, back = _round_trip(key, lambda code: code + 0.4)
    np.testing.assert_array_equal(back, key)


def test_specs_have_specs():
    coded = CodedTree({"n": jax.ShapeDtypeStruct((3,), jnp.int32)})
    assert coded.codes()["n"].shape == (3, 4)
    back = CodedTree(codes=coded.codes(), forms=coded.forms).values()
    assert back["n"].shape == (3,) and back["n"].dtype == jnp.int32


def test_what_is_no_longer_a_tree_of_that_form_is_explained():
    coded = CodedTree({"n": jnp.arange(2)})
    broken = CodedTree(codes={"n": None}, forms=coded.forms)
    with pytest.raises(ValueError, match="cannot be used as a model"):
        broken.values()
