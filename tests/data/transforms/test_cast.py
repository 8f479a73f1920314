"""`Cast`: change of dtype."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from kauldron.data.transforms import Cast


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
