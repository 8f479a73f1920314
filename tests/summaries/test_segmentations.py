"""Segmentations in colours."""

import jax
import numpy as np
import pytest

from kauldron import summaries
from kauldron.summaries.oklab import oklab_to_rgb, rgb_to_oklab, uniform_hues

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
