"""Which kind a value is, and what happens to values of no kind."""

import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd
from kauldron.writers.writer import route


def _kinds(value, *, is_summary=True):
    warnings = []
    scalars, summaries = ({}, {"v": value}) if is_summary else ({"v": value}, {})
    routed = route(scalars, summaries, warn=warnings.append)
    found = {kind: names for kind, names in vars(routed).items() if names}
    return found, warnings


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.zeros((2, 4, 4, 1), np.float32), "images"),
        (np.zeros((2, 4, 4, 3), np.float64), "images"),
        (np.zeros((2, 4, 4, 4), np.uint8), "images"),
        (np.zeros((2, 4, 4, 3), jnp.bfloat16), "images"),
        (np.zeros((2, 5, 4, 4, 3), np.uint8), "videos"),
        (kd.summaries.Histogram(tensor=np.zeros(3), num_buckets=5), "histograms"),
        (kd.summaries.PointCloud(point_clouds=np.zeros((2, 3))), "point_clouds"),
        ("text", "texts"),
        (["one", "two"], "texts"),
        (np.array(["one", "two"]), "texts"),
        (np.array([b"bytes"]), "texts"),
        (np.float32(3), "scalars"),
        (3, "scalars"),
        (np.ones((1, 1)), "scalars"),
    ],
)
def test_summary_is_sorted_by_what_it_is(value, kind):
    found, warnings = _kinds(value)
    assert list(found) == [kind] and not warnings


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((3, 3)),
        np.zeros((2, 4, 4, 2), np.float32),
        np.zeros((2, 4, 4, 3), np.int32),
        np.array([object()]),
    ],
)
def test_summary_of_no_kind_is_named_with_type_and_shape(value):
    found, [warning] = _kinds(value)
    assert not found
    assert "'v'" in warning and str(value.dtype) in warning
    assert str(list(value.shape)) in warning


def test_summary_without_a_picture_is_an_error():
    with pytest.raises(
        ValueError, match=r"'v' has no image: its shape is \(0, 4, 4, 3\)"
    ):
        _kinds(np.zeros((0, 4, 4, 3), np.float32))


@pytest.mark.parametrize(
    ("value", "scalars"),
    [
        (np.bool_(True), {"v": 1.0}),
        (np.int64(7), {"v": 7.0}),
        (jnp.bfloat16(0.5), {"v": 0.5}),
        (np.float32([[2.0]]), {"v": 2.0}),
        (np.arange(2), {"v/0": 0.0, "v/1": 1.0}),
        (np.ones((2, 2)), {f"v/{i}": 1.0 for i in range(4)}),
    ],
)
def test_metric_becomes_numbers(value, scalars):
    found, warnings = _kinds(value, is_summary=False)
    assert found == {"scalars": scalars} and not warnings


def test_metric_may_be_a_text():
    assert _kinds("a text", is_summary=False)[0] == {"texts": {"v": "a text"}}


@pytest.mark.parametrize(
    "value", [np.zeros(33), np.array(["a", "b"]), np.zeros(2, complex)]
)
def test_metric_that_cannot_be_numbers_is_named(value):
    found, [warning] = _kinds(value, is_summary=False)
    assert not found and warning.startswith("v is not written")
