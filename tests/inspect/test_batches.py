"""Statistics and pictures of batches."""

import base64
import io
import re

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from kauldron import kd
from kauldron.inspect.views import rows_of


def rows(batch):
    return {row["Name"]: row for row in rows_of(kd.inspect.get_batch_stats(batch))[1]}


def test_statistics_of_every_leaf():
    stats = rows({"image": np.array([[0, 4]], np.uint8), "more": [jnp.ones(3)]})
    assert stats["batch.image"] == {
        "Name": "batch.image",
        "Dtype": "uint8",
        "Shape": (1, 2),
        "Min": 0,
        "Max": 4,
        "Mean": 2,
        "StdDev": 2,
    }
    assert stats["batch.more[0]"]["StdDev"] == 0


def test_small_floats_and_booleans_are_numbers():
    stats = rows(
        {"b": np.array([True, False]), "h": np.array([1.5], ml_dtypes.bfloat16)}
    )
    assert stats["batch.b"]["Mean"] == 0.5
    assert stats["batch.h"]["Max"] == 1.5


@pytest.mark.parametrize("leaf", [np.array(["a", "b"]), np.zeros((0, 3)), b"text"])
def test_what_has_no_statistics_has_dashes(leaf):
    (row,) = rows({"x": leaf}).values()
    assert [row[name] for name in ("Min", "Max", "Mean", "StdDev")] == ["-"] * 4


def pictures(view):
    """The pictures in a page, decoded by another library."""
    image = pytest.importorskip("PIL.Image", reason='pip install "kauldron[images]"')
    found = re.findall(r"height:(\d+)px.*?base64,([^']+)'", view.html)
    return [
        (int(height), image.open(io.BytesIO(base64.b64decode(data))))
        for height, data in found
    ]


def test_first_eight_pictures_are_shown():
    view = kd.inspect.plot_batch({"image": np.zeros((20, 4, 6, 3), np.uint8)})
    shown = pictures(view)
    assert len(shown) == 8
    assert {picture.size for _, picture in shown} == {(6, 4)}
    assert str(view) == "batch.image: ui8[20 4 6 3], the first 8"


@pytest.mark.parametrize("size, height", [(8, 100), (150, 150), (600, 250)])
def test_height_on_the_screen_is_bounded(size, height):
    view = kd.inspect.plot_batch({"image": np.zeros((1, size, 4, 1), np.float32)})
    assert [shown for shown, _ in pictures(view)] == [height]


def test_pixels_are_those_of_the_batch():
    image = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), np.uint8)
    shown = pictures(kd.inspect.plot_batch({"image": image}))
    for (_, picture), expected in zip(shown, image):
        np.testing.assert_array_equal(np.asarray(picture), expected)


def test_floats_are_scaled_if_they_have_to():
    image = np.array([-1.0, 1.0], ml_dtypes.bfloat16).reshape(1, 1, 2, 1)
    view = kd.inspect.plot_batch({"image": image})
    assert np.asarray(pictures(view)[0][1]).tolist() == [[0, 255]]
    assert str(view).endswith("scaled from [-1, 1]")


def test_videos_are_animated():
    view = kd.inspect.plot_batch({"video": np.zeros((2, 5, 8, 8, 1), np.uint8)})
    assert [picture.n_frames for _, picture in pictures(view)] == [5, 5]


@pytest.mark.parametrize(
    "leaf",
    [
        np.zeros((2, 8, 8, 2), np.float32),  # two channels
        np.zeros((2, 8, 8, 3), np.int32),  # integers that are no bytes
        np.zeros((2, 3, 8, 8, 4), np.uint8),  # videos have no transparency
        np.zeros((0, 8, 8, 3), np.uint8),
        np.zeros((2, 8), np.float32),
    ],
)
def test_what_is_no_picture_is_left_out(leaf):
    view = kd.inspect.plot_batch({"x": leaf})
    assert "no picture" in str(view)
    assert "<img" not in view.html


def test_view_is_saved_as_a_page(tmp_path):
    view = kd.inspect.plot_batch({"image": np.zeros((1, 4, 4, 3), np.uint8)})
    path = view.save(tmp_path / "batch.html")
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert view.html in path.read_text()
