"""Boxes drawn on images."""

import jax
import numpy as np
import pytest

from kauldron import summaries
from kauldron.summaries.boxes import box_colors, draw_box


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


def test_first_images_are_kept_over_merged_batches():
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
