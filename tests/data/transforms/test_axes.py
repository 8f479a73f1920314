"""`Rearrange`, `Gather`, `CenterCrop`, `OneHot`."""

import jax.numpy as jnp
import numpy as np
import pytest

from kauldron.data.transforms import CenterCrop, Gather, OneHot, Rearrange


def apply(transform, value):
    return transform.map({"x": value})["x"]


# ----------------------------------------------------------------------------
# Rearrange
# ----------------------------------------------------------------------------


def test_rearrange_scalar_label():
    assert apply(Rearrange(key="x", pattern="... -> ... 1"), 3).shape == (1,)


def test_rearrange_with_lengths():
    transform = Rearrange(key="x", pattern="(a b) -> b a", axes_lengths={"a": 2})
    assert apply(transform, list(range(6))).tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    "pattern", ["h w", "h -> w -> h", "h w -> (h", "h h -> h", "", 3]
)
def test_rearrange_refuses_bad_patterns_at_construction(pattern):
    with pytest.raises(ValueError, match="pattern"):
        Rearrange(key="x", pattern=pattern)


def test_rearrange_wrong_rank_names_the_field():
    with pytest.raises(Exception, match="h w") as error:
        apply(Rearrange(key="x", pattern="h w -> w h"), np.zeros(3))
    assert error.value.__notes__ == ["Field 'x': float64[3]"]


# ----------------------------------------------------------------------------
# Gather
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("family", [np.asarray, jnp.asarray])
def test_gather_counts_negative_indices_from_the_end(family):
    x = family(np.arange(12).reshape(3, 4))
    result = apply(Gather(key="x", axis=1, indices=(-1, 0, 0)), x)
    np.testing.assert_array_equal(result, np.asarray(x)[:, [-1, 0, 0]])
    result = apply(Gather(key="x", axis=-2, indices=(2,)), x)
    np.testing.assert_array_equal(result, np.asarray(x)[[2]])


@pytest.mark.parametrize("family", [np.asarray, jnp.asarray])
@pytest.mark.parametrize("index", [4, -5])
def test_gather_out_of_range(family, index):
    x = family(np.zeros((3, 4)))
    with pytest.raises(
        IndexError, match=f"{index} is out of range for an axis of size 4"
    ):
        apply(Gather(key="x", axis=1, indices=(0, index)), x)


@pytest.mark.parametrize("axis", [2, -3])
def test_gather_axis_out_of_range(axis):
    with pytest.raises(IndexError, match=r"for the shape \(3, 4\)"):
        apply(Gather(key="x", axis=axis, indices=(0,)), np.zeros((3, 4)))
    with pytest.raises(IndexError, match=r"for the shape \(3, 4\)"):
        Gather(key="x", axis=axis, indices=(0,)).map_batch({"x": np.zeros((9, 3, 4))})


@pytest.mark.parametrize(
    "arguments",
    [
        {"axis": 0, "indices": 3},
        {"axis": 0, "indices": "01"},
        {"axis": 0, "indices": (0.5,)},
        {"axis": 0.0, "indices": (0,)},
        {"axis": None, "indices": (0,)},
    ],
)
def test_gather_refuses_bad_arguments_at_construction(arguments):
    with pytest.raises(TypeError, match="Gather"):
        Gather(key="x", **arguments)


# ----------------------------------------------------------------------------
# CenterCrop
# ----------------------------------------------------------------------------


def test_center_crop_is_a_view_of_the_middle():
    x = np.arange(25).reshape(5, 5)
    result = apply(CenterCrop(key="x", shape=(2, 3)), x)
    np.testing.assert_array_equal(result, x[1:3, 1:4])
    assert np.shares_memory(result, x)


def test_center_crop_none_keeps_and_zero_is_zero():
    x = np.zeros((4, 5, 6))
    assert apply(CenterCrop(key="x", shape=(None, 0, 6)), x).shape == (4, 0, 6)


@pytest.mark.parametrize("shape", [(2,), (2, 2, 2), (6, 2), (None, 7)])
def test_center_crop_that_does_not_fit_shows_both_shapes(shape):
    for value, method in (
        (np.zeros((5, 6)), "map"),
        (np.zeros((9, 5, 6)), "map_batch"),
    ):
        with pytest.raises(ValueError) as error:
            getattr(CenterCrop(key="x", shape=shape), method)({"x": value})
        assert str(shape) in str(error.value) and "(5, 6)" in str(error.value)


@pytest.mark.parametrize(
    ("error", "shape"),
    [(TypeError, 3), (TypeError, "33"), (TypeError, (1.5,)), (ValueError, (-1,))],
)
def test_center_crop_refuses_bad_shapes_at_construction(error, shape):
    with pytest.raises(error, match="CenterCrop"):
        CenterCrop(key="x", shape=shape)


# ----------------------------------------------------------------------------
# OneHot
# ----------------------------------------------------------------------------


def test_one_hot_of_a_label():
    result = apply(OneHot(key="x", num_classes=4), np.uint8(2))
    assert result.dtype == np.float32 and result.tolist() == [0, 0, 1, 0]


def test_one_hot_of_a_list_of_labels():
    labels = [0, 2, 2, -1]
    assert apply(OneHot(key="x", num_classes=3), labels).tolist() == [1, 0, 1]
    rows = apply(OneHot(key="x", num_classes=3, multi=False), labels)
    assert rows.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]]


def test_one_hot_of_no_label():
    assert apply(OneHot(key="x", num_classes=2), np.zeros(0, int)).tolist() == [0, 0]


def test_one_hot_on_and_off():
    result = apply(OneHot(key="x", num_classes=3, on=0.9, off=0.05), 0)
    np.testing.assert_allclose(result, [0.9, 0.05, 0.05])


def test_one_hot_label_too_large():
    with pytest.raises(ValueError, match="there is a label 3"):
        apply(OneHot(key="x", num_classes=3), [1, 3])


def test_one_hot_of_floats():
    with pytest.raises(TypeError, match="integers"):
        apply(OneHot(key="x", num_classes=3), 1.0)


@pytest.mark.parametrize(
    ("error", "num"), [(ValueError, 0), (ValueError, -1), (TypeError, 2.5)]
)
def test_one_hot_refuses_bad_sizes_at_construction(error, num):
    with pytest.raises(error):
        OneHot(key="x", num_classes=num)
