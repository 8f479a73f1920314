"""Point clouds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import summaries


def test_points_without_colors_from_a_context():
    metric = summaries.ShowPointCloud(point_clouds="preds.points")
    value = metric(context={"preds": {"points": np.arange(12.0).reshape(2, 2, 3)}})
    assert isinstance(value, summaries.PointCloud)
    np.testing.assert_array_equal(value.point_clouds, np.arange(12).reshape(4, 3))
    assert value.point_colors is None


def test_default_settings_are_a_near_camera_and_small_points():
    configs = summaries.ShowPointCloud()(point_clouds=np.zeros((1, 3))).configs
    assert configs["camera"]["near"] == 1e-4
    assert configs["material"]["size"] == 0.03


def test_colors_go_with_their_points_over_batches():
    metric = summaries.ShowPointCloud(num_points=2, configs={"a": 1})
    get_state = jax.jit(metric.get_state)
    points = jnp.arange(12.0).reshape(4, 3)
    state = get_state(point_clouds=points, point_colors=points / 12)
    value = state.merge(
        get_state(point_clouds=points + 1, point_colors=points)
    ).compute()
    np.testing.assert_array_equal(
        value.point_clouds, np.concatenate([points[:2], points[:2] + 1])
    )
    assert value.point_colors.shape == (4, 3)
    assert dict(value.configs) == {"a": 1}


def test_pattern_rearranges():
    metric = summaries.ShowPointCloud(
        rearrange="c (n m) -> (n m) c", rearrange_kwargs={"n": 2}
    )
    assert metric(point_clouds=np.zeros((3, 8))).point_clouds.shape == (8, 3)


def test_points_that_have_not_three_coordinates_are_refused():
    with pytest.raises(ValueError, match=r"\(5, 2\)"):
        summaries.ShowPointCloud()(point_clouds=np.zeros((5, 2)))


def test_pattern_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="cannot rearrange"):
        summaries.ShowPointCloud(rearrange="a b c -> a c")(
            point_clouds=np.zeros((5, 3))
        )


def test_batches_with_and_without_colors_do_not_merge():
    metric = summaries.ShowPointCloud()
    plain = metric.get_state(point_clouds=np.zeros((1, 3)))
    colored = metric.get_state(
        point_clouds=np.zeros((1, 3)), point_colors=np.zeros((1, 3))
    )
    with pytest.raises(ValueError, match="'point_colors'"):
        plain.merge(colored)
