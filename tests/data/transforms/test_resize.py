"""`Resize` and `ResizeSmall`."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron.data.transforms import Resize, ResizeSmall

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40))


def apply(value, **arguments):
    return Resize(key="x", **arguments).map({"x": value})["x"]


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "lanczos3", "lanczos5"])
@pytest.mark.parametrize(
    ("old", "new", "antialias"),
    [
        ((1, 2), (5, 3), True),
        ((30, 7), (4, 7), True),
        ((9, 40), (20, 13), True),
        ((30, 8), (7, 31), False),
    ],
)
def test_agrees_with_jax(method, old, new, antialias):
    image = np.random.default_rng(0).uniform(size=(*old, 2)).astype(np.float32)
    actual = apply(image, size=new, method=method, antialias=antialias)
    expected = jax.image.resize(image, (*new, 2), method, antialias=antialias)
    assert type(actual) is np.ndarray and actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("old", "new"),
    [(1, 224), (3, 7), (7, 3), (8, 5), (28, 14), (32, 224), (100, 64), (640, 224)],
)
def test_nearest_picks_the_pixels_that_jax_picks(old, new):
    image = np.arange(old, dtype=np.int32)[:, None, None]
    actual = apply(image, size=(new, 1))
    assert actual.dtype == np.int32
    expected = jax.image.resize(image, (new, 1, 1), "nearest")
    np.testing.assert_array_equal(actual, expected)


@given(old=st.integers(1, 3000), new=st.integers(1, 3000))
def test_nearest_picks_the_pixel_under_each_centre(old, new):
    image = np.arange(old)[:, None, None]
    picked = apply(image, size=(new, 1)).ravel()
    centers = [Fraction(2 * k + 1, 2) * old / new for k in range(new)]
    assert picked.tolist() == [math.floor(center) for center in centers]


def test_default_is_nearest_for_integers_and_bilinear_for_floats():
    image = np.random.default_rng(0).integers(0, 255, (9, 7, 3))
    for dtype in (np.uint8, np.int64, bool):
        x = image.astype(dtype)
        result = apply(x, size=(4, 5))
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, apply(x, size=(4, 5), method="nearest"))
    x = image.astype(np.float32)
    np.testing.assert_array_equal(
        apply(x, size=(4, 5)), apply(x, size=(4, 5), method="bilinear")
    )


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "area"])
def test_float_methods_turn_integers_into_float32(method):
    for dtype in (np.uint8, bool):
        result = apply(np.ones((4, 4, 1), dtype), size=(3, 3), method=method)
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, 1, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_float_dtypes_stay(dtype):
    dtype = np.dtype(jnp.dtype(dtype))
    assert apply(np.ones((4, 4, 1), dtype), size=(3, 3)).dtype == dtype


def test_jax_arrays_stay_and_agree():
    image = np.random.default_rng(0).uniform(size=(2, 9, 7, 3)).astype(np.float32)
    for method in ("nearest", "bilinear", "lanczos3", "area"):
        actual = apply(jnp.asarray(image), size=(12, 4), method=method)
        assert isinstance(actual, jax.Array)
        np.testing.assert_allclose(
            actual, apply(image, size=(12, 4), method=method), atol=1e-5
        )


def test_area_averages_boxes():
    x = np.arange(8, dtype=np.float32).reshape(2, 4, 1)
    result = apply(x, size=(1, 2), method="area")
    np.testing.assert_allclose(result[..., 0], [[2.5, 4.5]])
    # Boxes may cover parts of pixels.
    row = apply(np.array([0.0, 3.0, 6.0])[None, :, None], size=(1, 2), method="area")
    np.testing.assert_allclose(row.ravel(), [1.0, 5.0])


@given(old=SIZES, new=SIZES)
def test_area_keeps_constants_and_the_mean(old, new):
    image = np.random.default_rng(0).uniform(size=(*old, 1))
    result = apply(image, size=new, method="area")
    np.testing.assert_allclose(
        apply(np.full_like(image, 3.0), size=new, method="area"), 3
    )
    if old[0] % new[0] == 0 and old[1] % new[1] == 0:
        np.testing.assert_allclose(result.mean(), image.mean())


@pytest.mark.parametrize(
    ("shape", "arguments", "expected"),
    [
        ((20, 40), {"min_size": 10}, (10, 20)),
        ((40, 20), {"min_size": 10}, (20, 10)),
        ((20, 40), {"max_size": 10}, (5, 10)),
        ((40, 20), {"max_size": 80}, (80, 40)),
        ((100, 1), {"max_size": 10}, (10, 1)),
        ((49, 49), {"min_size": 28}, (28, 28)),
        ((33, 50), {"min_size": 20}, (20, 30)),
    ],
)
def test_sizes_by_one_edge(shape, arguments, expected):
    result = apply(np.zeros((*shape, 3), np.uint8), **arguments)
    assert result.shape == (*expected, 3)


def test_leading_axes():
    assert apply(np.zeros((2, 5, 8, 6, 3)), size=(4, 4)).shape == (2, 5, 4, 4, 3)


def test_same_size_changes_nothing():
    image = np.random.default_rng(0).uniform(size=(5, 6, 3))
    np.testing.assert_array_equal(apply(image, size=(5, 6), method="bicubic"), image)


@pytest.mark.parametrize("name", ["linear", "Bilinear", "triangle", "cubic"])
def test_other_names_of_methods(name):
    assert apply(np.zeros((4, 4, 1)), size=(2, 2), method=name).shape == (2, 2, 1)


@pytest.mark.parametrize("shape", [(), (4,), (4, 4)])
def test_rank_too_small_says_how_to_add_a_channel(shape):
    for method, value in (
        ("map", np.zeros(shape)),
        ("map_batch", np.zeros((2, *shape))),
    ):
        with pytest.raises(ValueError, match=r"\(..., h, w, c\).*Rearrange"):
            getattr(Resize(key="x", size=(2, 2)), method)({"x": value})


def test_image_without_pixels():
    with pytest.raises(ValueError, match=r"\(0, 4, 3\)"):
        apply(np.zeros((0, 4, 3)), size=(2, 2))


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ValueError, {}),
        (ValueError, {"size": (2, 2), "min_size": 3}),
        (ValueError, {"min_size": 2, "max_size": 3}),
        (ValueError, {"size": 3}),
        (ValueError, {"size": (3, 3, 3)}),
        (ValueError, {"size": (0, 3)}),
        (ValueError, {"min_size": -1}),
        (TypeError, {"size": (2.5, 3)}),
        (TypeError, {"max_size": "3"}),
        (ValueError, {"size": (2, 2), "method": "bilinaer"}),
    ],
)
def test_bad_arguments_are_found_at_construction(error, arguments):
    with pytest.raises(error, match=r"size|method"):
        Resize(key="x", **arguments)


def test_resize_small():
    image = np.random.default_rng(0).uniform(size=(8, 12, 3))
    result = ResizeSmall(key="x", smaller_size=4).map({"x": image})["x"]
    np.testing.assert_array_equal(result, apply(image, min_size=4, method="area"))
    mask = image > 0.5
    result = ResizeSmall(key="x", smaller_size=4).map({"x": mask})["x"]
    np.testing.assert_array_equal(result, apply(mask, min_size=4, method="nearest"))
    result = ResizeSmall(key="x", smaller_size=4, method="bicubic").map({"x": image})[
        "x"
    ]
    np.testing.assert_array_equal(result, apply(image, min_size=4, method="bicubic"))


@pytest.mark.parametrize(
    "arguments", [{"smaller_size": 0}, {"smaller_size": 4, "method": "best"}]
)
def test_resize_small_refuses_bad_arguments_at_construction(arguments):
    with pytest.raises(ValueError):
        ResizeSmall(key="x", **arguments)
