"""Pictures: images and their differences, boxes, segmentations."""

import importlib.util

import jax
import ml_dtypes
import numpy as np
import pytest

from kauldron import summaries
from kauldron.summaries.colors import (
    apply_colormap,
    oklab_to_rgb,
    rgb_to_oklab,
    uniform_hues,
)
from kauldron.summaries.images import box_colors, draw_box

#
# Images and differences
#


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
    shown = show(images1=jax.device_put(first), images2=jax.device_put(second))
    assert shown.max() == pytest.approx(10 / 255)


def test_difference_of_different_shapes_is_refused():
    with pytest.raises(Exception, match="images2"):
        summaries.ShowDifferenceImages()(
            images1=uniform(1, 4, 4, 3), images2=uniform(1, 4, 5, 3)
        )


#
# Boxes
#


def drawn(box, size=8, height=None):
    """Which pixels of a black image a white box covers."""
    image = np.zeros((height or size, size, 3))
    draw_box(image, np.asarray(box, float), np.ones(3))
    return image[..., 0].astype(int)


def test_outline_is_one_pixel_thick_and_covers_the_box():
    expected = np.zeros((8, 8), int)
    expected[2, 2:6] = expected[5, 2:6] = expected[2:6, 2] = expected[2:6, 5] = 1
    np.testing.assert_array_equal(drawn([0.25, 0.25, 0.75, 0.75]), expected)


def test_box_of_the_whole_image_is_its_border():
    expected = np.ones((8, 8), int)
    expected[1:-1, 1:-1] = 0
    np.testing.assert_array_equal(drawn([0, 0, 1, 1]), expected)


def test_rows_scale_with_the_height_and_columns_with_the_width():
    pixels = np.argwhere(drawn([0.5, 0.25, 1.0, 0.5], size=8, height=4))
    assert pixels.min(0).tolist() == [2, 2]
    assert pixels.max(0).tolist() == [3, 3]


def test_float32_boxes_end_where_they_should():
    box = np.array([0.6, 0.6, 0.7, 0.7], np.float32)
    assert np.argwhere(drawn(box, size=10)).tolist() == [[6, 6]]


def test_edges_outside_the_image_are_not_drawn():
    expected = np.zeros((8, 8), int)
    expected[3, :4] = expected[:4, 3] = 1
    np.testing.assert_array_equal(drawn([-1, -1, 0.5, 0.5]), expected)
    assert drawn([2, 2, 3, 3]).sum() == 0
    assert drawn([-3, -3, -2, -2]).sum() == 0
    assert drawn([-1, -1, 2, 2]).sum() == 0


@pytest.mark.parametrize("box", [[0.5, 0.5, 0.5, 0.5], [0.8, 0, 0.2, 1], [np.nan] * 4])
def test_empty_boxes_are_skipped(box):
    assert drawn(box).sum() == 0


def test_colors_are_evenly_spaced_hues():
    expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    np.testing.assert_allclose(box_colors(3), expected, atol=1e-9)


def test_colors_are_cycled():
    boxes = np.array([[[0, 0, 0.1, 0.1], [0.2, 0.2, 0.3, 0.3], [0.4, 0.4, 0.5, 0.5]]])
    show = summaries.ShowBoxes(num_colors=2)
    image = show(images=np.zeros((1, 10, 10, 3)), boxes=boxes)[0]
    assert image[0, 0].tolist() == image[4, 4].tolist() == [1, 0, 0]
    assert image[2, 2].tolist() == [0, 1, 1]


def test_masked_boxes_are_hidden_also_inside_jit():
    show = summaries.ShowBoxes()
    boxes = np.array([[[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]], np.float32)
    mask = np.array([[[True], [False]]])
    images = np.zeros((1, 8, 8, 1), np.float32)
    state = jax.jit(show.get_state)(images=images, boxes=boxes, boxes_mask=mask)
    image = state.compute()[0]
    assert image[:4, :4].any()
    assert not image[4:, 4:].any()


def test_gray_and_uint8_images_become_colored_floats():
    boxes = np.zeros((1, 0, 4), np.float32)
    shown = summaries.ShowBoxes()(
        images=np.full((1, 2, 2, 1), 51, np.uint8), boxes=boxes
    )
    np.testing.assert_allclose(shown, np.full((1, 2, 2, 3), 0.2), rtol=1e-6)


def test_single_image_without_batch():
    boxes = np.array([[0.0, 0.0, 1.0, 1.0]])
    shown = summaries.ShowBoxes()(images=np.zeros((4, 4, 3)), boxes=boxes)
    assert shown.shape == (1, 4, 4, 3)


def test_pattern_is_applied_after_drawing():
    images = np.zeros((2, 3, 8, 8, 3))
    boxes = np.broadcast_to([0.0, 0.0, 0.5, 0.5], (2, 3, 1, 4))
    show = summaries.ShowBoxes(rearrange="b t h w c -> b h (t w) c")
    shown = show(images=images, boxes=boxes)
    assert shown.shape == (2, 8, 24, 3)
    np.testing.assert_array_equal(shown[:, :, :8], shown[:, :, 8:16])
    assert shown[0, 0, 0].tolist() == [1, 0, 0]


def test_first_images_with_boxes_are_kept_over_merged_batches():
    show = summaries.ShowBoxes(num_images=3)
    images = np.linspace(0, 1, 4).reshape(4, 1, 1, 1) * np.ones((4, 4, 4, 1))
    boxes = np.zeros((4, 2, 4))
    state = show.get_state(images=images[:2], boxes=boxes[:2])
    merged = state.merge(show.get_state(images=images[2:], boxes=boxes[2:]))
    np.testing.assert_allclose(
        merged.compute()[:, 0, 0, 0], [0, 1 / 3, 2 / 3], rtol=1e-6
    )


def test_no_colors_are_refused():
    with pytest.raises(ValueError, match="num_colors"):
        summaries.ShowBoxes(num_colors=0)


def test_boxes_of_wrong_shape_are_refused():
    with pytest.raises(Exception, match="boxes"):
        summaries.ShowBoxes()(images=np.zeros((2, 4, 4, 3)), boxes=np.zeros((3, 1, 4)))


#
# Segmentations
#


RED_GREEN_BLUE = np.eye(3)
IDS = np.array([[0, 0, 1], [0, 2, 1]])[None, ..., None]


def show(segmentations, **kwargs):
    return summaries.ShowSegmentations(**kwargs)(segmentations=segmentations)


def test_ids_get_the_colors_of_the_palette():
    shown = show(IDS, palette=RED_GREEN_BLUE)
    np.testing.assert_allclose(shown, RED_GREEN_BLUE[IDS[..., 0]], atol=1e-4)


@pytest.mark.parametrize("palette", [RED_GREEN_BLUE, RED_GREEN_BLUE.tolist()])
def test_palette_of_any_sequence_has_a_hash(palette):
    metric = summaries.ShowSegmentations(palette=palette)
    assert hash(metric) == hash(summaries.ShowSegmentations(palette=RED_GREEN_BLUE))


def test_default_colors_are_distinct():
    shown = show(np.arange(6).reshape(1, 2, 3, 1))
    colors = shown.reshape(6, 3)
    distances = np.linalg.norm(colors[:, None] - colors[None], axis=-1)
    assert distances[~np.eye(6, dtype=bool)].min() > 0.2
    assert colors.min() >= 0 and colors.max() <= 1


def test_default_hues_start_at_three_quarters_of_the_circle():
    lightness, a, b = uniform_hues(4)[0]
    assert (lightness, a, b) == pytest.approx((0.8, 0.0, -0.3))


def test_certain_probabilities_look_like_ids():
    probs = np.eye(3, dtype=np.float32)[IDS[..., 0]]
    np.testing.assert_allclose(
        show(probs, palette=RED_GREEN_BLUE),
        show(IDS, palette=RED_GREEN_BLUE),
        atol=1e-4,
    )


def test_soft_maps_are_blended_in_oklab():
    probs = np.array([0.25, 0.75], np.float32).reshape(1, 1, 1, 2)
    palette = np.array([[1.0, 0, 0], [0, 0, 1.0]])
    lab = rgb_to_oklab(palette)
    expected = oklab_to_rgb(0.25 * lab[0] + 0.75 * lab[1])
    np.testing.assert_allclose(
        show(probs, palette=palette)[0, 0, 0], expected, atol=1e-5
    )


def test_hard_maps_show_the_most_probable():
    probs = np.array([0.4, 0.6], np.float32).reshape(1, 1, 1, 2)
    palette = np.array([[1.0, 0, 0], [0, 0, 1.0]])
    shown = show(probs, palette=palette, hard=True)
    np.testing.assert_allclose(shown[0, 0, 0], [0, 0, 1], atol=1e-4)


def test_entropy_darkens_what_is_uncertain():
    probs = np.array([[1.0, 0.0], [0.8, 0.2], [0.5, 0.5]], np.float32)
    palette = np.full((2, 3), 0.5)
    shown = show(probs.reshape(1, 1, 3, 2), palette=palette, entropy=True)[0, 0, :, 0]
    assert shown[0] == pytest.approx(0.5, abs=1e-4)
    assert shown[0] > shown[1] > shown[2]
    assert shown[2] == pytest.approx(0.0, abs=1e-4)


def test_entropy_of_a_single_segment_changes_nothing():
    probs = np.ones((1, 2, 2, 1), np.float32)
    np.testing.assert_array_equal(show(probs, entropy=True), show(probs))


@pytest.mark.parametrize("lightness, brighter", [(1.0, True), (0.0, False)])
def test_edges_are_marked_where_ids_change(lightness, brighter):
    ids = np.repeat([0, 1], 10).reshape(1, 1, 20, 1) * np.ones((1, 20, 1, 1), int)
    palette = np.full((2, 3), 0.5)
    shown = show(ids, palette=palette, edges=True, edge_lightness=lightness)[0, 5, :, 0]
    assert shown[0] == pytest.approx(0.5, abs=1e-4)
    assert shown[19] == pytest.approx(0.5, abs=1e-4)
    assert (shown[10] > 0.6) if brighter else (shown[10] < 0.4)


def test_colors_are_laid_over_images():
    ids = np.zeros((1, 1, 2, 1), int)
    images = np.array([0.0, 1.0]).reshape(1, 1, 2, 1)
    metric = summaries.ShowSegmentations(palette=[[0.5, 0.5, 0.5]], image_contrast=1.0)
    shown = metric(segmentations=ids, images=images)[0, 0, :, 0]
    assert shown.tolist() == pytest.approx([0.0, 1.0], abs=1e-3)
    flat = summaries.ShowSegmentations(palette=[[0.5, 0.5, 0.5]], image_contrast=0.0)
    shown = flat(segmentations=ids, images=images)[0, 0, :, 0]
    assert shown.tolist() == pytest.approx([0.5, 0.5], abs=1e-3)


def test_images_that_do_not_fit_are_refused_with_both_shapes():
    with pytest.raises(ValueError, match=r"\(1, 3, 3, 1\).*\(1, 2, 3, 1\)"):
        summaries.ShowSegmentations()(segmentations=IDS, images=np.zeros((1, 3, 3, 1)))


def test_negative_ids_are_black():
    shown = show(np.array([-1, 0]).reshape(1, 1, 2, 1))
    assert shown[0, 0, 0].tolist() == [0, 0, 0]
    assert shown[0, 0, 1].any()


def test_too_few_colors_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"2 colours.*3 segments"):
        show(IDS, palette=RED_GREEN_BLUE[:2])


def test_palette_of_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"\(3, 4\)"):
        show(IDS, palette=np.zeros((3, 4)))


def test_ids_with_several_channels_are_refused():
    with pytest.raises(ValueError, match="1 channels"):
        show(np.zeros((1, 2, 2, 3), int))


def test_first_maps_are_kept_inside_jit_and_over_batches():
    metric = summaries.ShowSegmentations(
        num_images=3, rearrange="b t h w c -> (b t) h w c"
    )
    get_state = jax.jit(lambda ids: metric.get_state(segmentations=ids))
    ids = np.zeros((1, 2, 4, 4, 1), int)
    state = get_state(ids).merge(get_state(ids)).merge(get_state(ids))
    assert state.compute().shape == (3, 4, 4, 3)
