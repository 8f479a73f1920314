"""Casts and changes of the range of values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron.data.transforms import Cast, ValueRange

SMALL = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3))
RANGES = st.tuples(SMALL, SMALL).filter(lambda ends: abs(ends[0] - ends[1]) > 0.01)


def apply(values, **arguments):
    return ValueRange(key="x", **arguments).map({"x": values})["x"]


def formula(x, vrange, in_vrange):
    x = np.asarray(x, np.float64)
    (in_low, in_high), (low, high) = in_vrange, vrange
    y = (x - in_low) / (in_high - in_low) * (high - low) + low
    return np.clip(y, min(vrange), max(vrange))


@given(vrange=RANGES, in_vrange=RANGES, seed=st.integers(0, 1000))
def test_is_the_formula_to_a_millionth_of_the_range(vrange, in_vrange, seed):
    low, high = min(in_vrange), max(in_vrange)
    width = high - low
    rng = np.random.default_rng(seed)
    x = rng.uniform(low - width / 4, high + width / 4, 50).astype(np.float32)
    result = apply(x, vrange=vrange, in_vrange=in_vrange)
    assert result.dtype == np.float32
    # Numbers as large as `vrange` itself cannot be closer than float32 is.
    scale = max(abs(vrange[1] - vrange[0]), *map(abs, vrange))
    near = 1e-6 * scale
    if max(map(abs, in_vrange)) > 4 * width:  # the input itself is only float32
        near += 2e-7 * max(map(abs, in_vrange)) / width * abs(vrange[1] - vrange[0])
    np.testing.assert_allclose(result, formula(x, vrange, in_vrange), rtol=0, atol=near)
    assert result.min() >= np.float32(min(vrange))
    assert result.max() <= np.float32(max(vrange))


@given(vrange=RANGES, in_vrange=RANGES)
def test_ends_go_to_ends(vrange, in_vrange):
    ends = np.array(in_vrange)
    result = apply(ends, vrange=vrange, in_vrange=in_vrange, dtype=np.float64)
    np.testing.assert_allclose(result, vrange, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("vrange", [(0, 1), (-1, 1), (1, -1), (0.1, 0.9), (0, 255)])
def test_all_bytes_stay_inside_and_near_the_formula(vrange):
    x = np.arange(256, dtype=np.uint8)
    result = apply(x, vrange=vrange)
    width = abs(vrange[1] - vrange[0])
    np.testing.assert_allclose(
        result, formula(x, vrange, (0, 255)), rtol=0, atol=1e-6 * width
    )
    assert result.min() >= np.float32(min(vrange))
    assert result.max() <= np.float32(max(vrange))


def test_inverted_range():
    np.testing.assert_allclose(apply([0, 255, 300], vrange=(1, 0)), [1, 0, 0])


def test_inverted_input_range():
    result = apply([1.0, 0.0], vrange=(0, 10), in_vrange=(1, 0))
    np.testing.assert_allclose(result, [0, 10])


def test_values_outside_are_clipped_unless_told():
    np.testing.assert_allclose(apply([-255, 510], vrange=(0, 1)), [0, 1])
    result = apply([-255, 510], vrange=(0, 1), clip_values=False)
    np.testing.assert_allclose(result, [-1, 2], rtol=1e-6)


def test_integers_that_can_leave_the_range_are_clipped():
    x = np.array([-128, 127], np.int8)
    np.testing.assert_allclose(apply(x, vrange=(0, 1), in_vrange=(0, 100)), [0, 1])


@pytest.mark.parametrize(
    "value", [255, 255.0, np.uint8(255), np.float64(255), np.array(255), [255], True]
)
def test_scalars_and_lists(value):
    in_vrange = (0, 1) if value is True else (0, 255)
    result = apply(value, vrange=(-1, 1), in_vrange=in_vrange)
    assert result.dtype == np.float32
    assert np.shape(result) == np.shape(value)
    np.testing.assert_allclose(result, np.ones(np.shape(value)))


def test_jax_arrays():
    result = apply(jnp.array([0, 255], jnp.uint8), vrange=(-1, 1))
    assert isinstance(result, jax.Array) and result.dtype == jnp.float32
    np.testing.assert_allclose(result, [-1, 1])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_float_dtypes_by_name(dtype):
    result = apply(np.array([0, 255], np.uint8), vrange=(-1, 1), dtype=dtype)
    assert result.dtype.name == dtype
    np.testing.assert_array_equal(result.astype(np.float64), [-1, 1])


def test_integers_are_rounded_not_cut():
    x = np.array([0.0, 0.499, 0.5, 1.0])
    result = apply(x, vrange=(0, 255), in_vrange=(0, 1), dtype="uint8")
    assert result.dtype == np.uint8
    assert result.tolist() == [0, 127, 128, 255]


def test_integers_never_overflow():
    x = np.array([-1.0, 2.0])
    arguments = {"in_vrange": (0, 1), "clip_values": False}
    assert apply(x, vrange=(0, 255), dtype="uint8", **arguments).tolist() == [0, 255]
    wide = apply(x, vrange=(0, 2**40), dtype="int32", **arguments)
    assert wide[0] == -(2**31) and wide[1] > 2**30


def test_booleans():
    assert apply([0, 255], vrange=(0, 1), dtype=bool).tolist() == [False, True]


def test_bfloat16_input():
    x = np.array([0, 255], ml_dtypes.bfloat16)
    np.testing.assert_allclose(apply(x, vrange=(0, 1)), [0, 1], atol=1e-6)


def test_nan_stays_nan():
    assert np.isnan(apply(np.array([np.nan]), vrange=(0, 1))[0])


def test_read_only_input_is_not_written():
    x = np.arange(4, dtype=np.float32)
    x.flags.writeable = False
    apply(x, vrange=(0, 1))
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("xnp", [np, jnp])
def test_complex_numbers_have_no_range(xnp):
    with pytest.raises(TypeError, match="real numbers"):
        apply(xnp.array([1j]), vrange=(0, 1))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"vrange": (0, 1), "in_vrange": (3, 3)}, "both ends are equal"),
        ({"vrange": (0, 1, 2)}, "expected two numbers"),
        ({"vrange": 1}, "expected two numbers"),
        ({"vrange": ("a", "b")}, "expected two numbers"),
        ({"vrange": (0, float("inf"))}, "finite"),
        ({"vrange": (0, 1), "in_vrange": (float("nan"), 1)}, "finite"),
    ],
)
def test_bad_ranges_are_found_at_construction(arguments, words):
    with pytest.raises(ValueError, match=words):
        ValueRange(key="x", **arguments)


@pytest.mark.parametrize("dtype", ["complex64", "str", None])
def test_bad_dtypes_are_found_at_construction(dtype):
    with pytest.raises(TypeError):
        ValueRange(key="x", vrange=(0, 1), dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.float32, np.float32),
        ("float32", np.float32),
        (np.dtype("int8"), np.int8),
        (float, np.float64),
        (bool, np.bool_),
        (jnp.bfloat16, ml_dtypes.bfloat16),
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        (jnp.int32, np.int32),
    ],
    ids=str,
)
def test_dtypes_in_every_spelling(dtype, expected):
    result = Cast(key="x", dtype=dtype).map({"x": np.arange(3)})["x"]
    assert result.dtype == expected
    np.testing.assert_array_equal(result.astype(np.float64) > 0, [False, True, True])


def test_casts_as_astype_does():
    assert Cast(key="x", dtype=int).map({"x": [1.9, -1.9]})["x"].tolist() == [1, -1]


@pytest.mark.parametrize("dtype", ["flaot32", "", "S3", str, object, None, [1]])
def test_dtypes_that_are_none(dtype):
    with pytest.raises(TypeError, match="dtype"):
        Cast(key="x", dtype=dtype)


def test_misspelt_dtype_proposes_the_nearest():
    with pytest.raises(TypeError, match="Did you mean 'float32'"):
        Cast(key="x", dtype="flaot32")


def test_jax_arrays_stay_and_64_bits_become_32_without_a_warning(recwarn):
    result = Cast(key="x", dtype="float64").map({"x": jnp.arange(3)})["x"]
    assert isinstance(result, jax.Array) and result.dtype == jnp.float32
    assert not recwarn.list
