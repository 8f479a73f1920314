"""Pictures of images."""

import importlib.util

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from kauldron import summaries
from kauldron.summaries.colormaps import apply_colormap

RNG = np.random.default_rng(0)


def uniform(*shape):
    return RNG.uniform(size=shape).astype(np.float32)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
@pytest.mark.parametrize("channels", [1, 3])
def test_float_images_of_any_leading_rank(leading, channels):
    images = uniform(*leading, 4, 5, channels)
    shown = summaries.ShowImages(num_images=None)(images=images)
    np.testing.assert_array_equal(shown, images.reshape(-1, 4, 5, channels))


def test_uint8_images_become_floats():
    images = RNG.integers(0, 256, (2, 4, 4, 3)).astype(np.uint8)
    shown = summaries.ShowImages()(images=images)
    assert shown.dtype == np.float32
    np.testing.assert_allclose(shown, images / 255, rtol=1e-6)


def test_bfloat16_images_become_floats():
    images = uniform(1, 4, 4, 3).astype(ml_dtypes.bfloat16)
    shown = summaries.ShowImages()(images=images)
    np.testing.assert_array_equal(shown, images.astype(np.float32))


def test_values_are_clipped_to_the_unit_range():
    shown = summaries.ShowImages()(
        images=np.array([-1.0, 0.5, 2.0]).reshape(1, 1, 3, 1)
    )
    assert shown.ravel().tolist() == [0.0, 0.5, 1.0]


def test_value_range_is_clipped_and_mapped():
    images = np.array([-3.0, -1.0, 0.0, 1.0, 5.0]).reshape(1, 1, 5, 1)
    shown = summaries.ShowImages(in_vrange=(-1, 1))(images=images)
    assert shown.ravel().tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]


def test_pattern_rearranges():
    videos = uniform(2, 3, 4, 5, 1)
    show = summaries.ShowImages(
        rearrange="b (t s) h w c -> b h (t s w) c", rearrange_kwargs={"s": 3}
    )
    shown = show(images=videos)
    assert shown.shape == (2, 4, 15, 1)
    np.testing.assert_array_equal(shown[1, :, 5:10], videos[1, 1])
    assert isinstance(hash(show), int)


def test_first_images_are_kept_over_merged_batches():
    show = summaries.ShowImages(num_images=3)
    get_state = jax.jit(lambda images: show.get_state(images=images))
    images = uniform(8, 2, 2, 1)
    state = show.empty()
    for start in range(0, 8, 2):
        state = state.merge(get_state(images[start : start + 2]))
    np.testing.assert_array_equal(state.compute(), images[:3])


def test_only_the_first_images_leave_the_step():
    state = summaries.ShowImages(num_images=3).get_state(images=uniform(64, 2, 2, 1))
    assert state.images.shape == (3, 2, 2, 1)


def test_all_images_are_kept_without_a_number():
    show = summaries.ShowImages(num_images=None)
    state = show.get_state(images=uniform(7, 2, 2, 1))
    assert state.merge(state).compute().shape == (14, 2, 2, 1)


def test_gray_colormap_spans_the_data():
    images = np.array([2.0, 4.0, 6.0]).reshape(1, 1, 3, 1)
    shown = summaries.ShowImages(cmap="gray")(images=images)
    assert shown.shape == (1, 1, 3, 3)
    assert shown[0, 0, :, 0].tolist() == [0.0, 0.5, 1.0]


def test_gray_colormap_spans_the_value_range():
    images = np.array([2.0, 4.0, 6.0]).reshape(1, 1, 3, 1)
    shown = summaries.ShowImages(cmap="gray_r", in_vrange=(0, 8))(images=images)
    assert shown[0, 0, :, 0].tolist() == [0.75, 0.5, 0.25]


def test_pixels_that_are_no_numbers_are_black():
    images = np.array([np.nan, 1.0, 3.0]).reshape(1, 1, 3, 1)
    assert summaries.ShowImages()(images=images).ravel().tolist() == [0.0, 1.0, 1.0]
    colored = summaries.ShowImages(cmap="gray")(images=images)
    assert colored.shape == (1, 1, 3, 3)
    assert colored[0, 0, :, 0].tolist() == [0.0, 0.0, 1.0]


def test_image_of_one_value_can_be_colored():
    shown = summaries.ShowImages(cmap="gray")(images=np.full((1, 2, 2, 1), 7.0))
    assert np.isfinite(shown).all()


def test_colormap_on_three_channels_is_refused():
    with pytest.raises(ValueError, match="one channel"):
        summaries.ShowImages(cmap="gray")(images=uniform(1, 4, 4, 3))


def test_colormaps_of_matplotlib():
    values = np.linspace(0, 1, 5)
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(ImportError, match=r'pip install "kauldron\[plots\]"'):
            apply_colormap(values, "viridis")
        return
    colors = apply_colormap(values, "viridis")
    assert colors.shape == (5, 3)
    assert colors[0].round(2).tolist() == pytest.approx([0.27, 0.0, 0.33], abs=0.01)
    with pytest.raises(ValueError, match="no_such_map"):
        apply_colormap(values, "no_such_map")


@pytest.mark.parametrize(
    "images, error, words",
    [
        (np.ones((1, 4, 4, 2)), ValueError, "1 or 3 channels"),
        (np.ones((6, 4, 4)), ValueError, 'rearrange="n h w -> n h w 1"'),
        (np.ones((4, 4)), ValueError, "rearrange"),
        (np.ones((1, 4, 4, 3), int), TypeError, "float or uint8"),
    ],
)
def test_arrays_that_are_no_images_are_refused(images, error, words):
    with pytest.raises(error, match=words):
        summaries.ShowImages()(images=images)


def test_pattern_that_does_not_fit_is_refused_with_shape_and_pattern():
    show = summaries.ShowImages(rearrange="b t h w c -> (b t) h w c")
    with pytest.raises(ValueError, match=r"\(2, 4, 4, 3\)") as info:
        show(images=uniform(2, 4, 4, 3))
    assert "b t h w c -> (b t) h w c" in str(info.value)


@pytest.mark.parametrize("vrange", [(1, 0), (0, 0), (0, 1, 2)])
def test_value_range_that_is_none_is_refused_at_construction(vrange):
    with pytest.raises(ValueError, match="in_vrange"):
        summaries.ShowImages(in_vrange=vrange)


def test_no_images_are_refused_with_the_name():
    with pytest.raises(ValueError, match=r"ShowImages.*at least one batch"):
        summaries.ShowImages().empty().compute()


def test_older_summaries_name_their_replacement():
    for cls in (summaries.deprecated.Summary, summaries.deprecated.ImageSummary):
        with pytest.raises(RuntimeError, match="ShowImages"):
            cls()


#
# Differences
#


def test_difference_spans_the_data_without_value_range():
    first = np.array([0.0, 0.25, 0.5]).reshape(1, 1, 3, 1)
    shown = summaries.ShowDifferenceImages()(
        images1=first, images2=np.zeros_like(first)
    )
    assert shown[0, 0, :, 0].tolist() == [0.0, 0.5, 1.0]


def test_difference_spans_the_unit_range_with_value_range():
    first = np.array([-1.0, 0.0, 1.0, 9.0]).reshape(1, 1, 4, 1)
    show = summaries.ShowDifferenceImages(vrange=(-1, 1))
    shown = show(images1=first, images2=-np.ones_like(first))
    assert shown[0, 0, :, 0].tolist() == [0.0, 0.5, 1.0, 1.0]


def test_difference_is_averaged_over_channels():
    first = np.array([[[[0.0, 0.3, 0.9]]]])
    show = summaries.ShowDifferenceImages(vrange=(0, 1))
    shown = show(images1=first, images2=np.zeros_like(first))
    np.testing.assert_allclose(shown, np.full((1, 1, 1, 3), 0.4), rtol=1e-5)


def test_difference_of_uint8_does_not_wrap():
    first, second = (
        np.uint8([10]).reshape(1, 1, 1, 1),
        np.uint8([20]).reshape(1, 1, 1, 1),
    )
    show = summaries.ShowDifferenceImages(vrange=(0, 1))
    shown = show(images1=jnp.asarray(first), images2=jnp.asarray(second))
    assert shown.max() == pytest.approx(10 / 255)


def test_difference_of_different_shapes_is_refused():
    with pytest.raises(Exception, match="images2"):
        summaries.ShowDifferenceImages()(
            images1=uniform(1, 4, 4, 3), images2=uniform(1, 4, 5, 3)
        )
