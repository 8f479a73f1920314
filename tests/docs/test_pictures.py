"""The pictures of the site come from a real run and are well-formed."""

import importlib
import pathlib
import xml.etree.ElementTree as ET

import pytest

SITE = pathlib.Path(__file__).parents[2] / "docs" / "site"


@pytest.fixture(scope="module")
def pictures():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SITE))
        yield importlib.import_module("pictures")


@pytest.fixture(scope="module")
def run(pictures):
    return pictures.digits_run(40, (0, 40))


def test_run_learns_and_shows_each_step(pictures, run):
    steps, losses = run.curves["test"]
    assert losses[steps.index(40)] < losses[steps.index(0)]
    assert list(run.rows) == ["held-out digits", "after 0 steps", "after 40 steps"]
    assert all(images.shape == (8, 8, 8, 1) for images in run.rows.values())


def test_picture_of_run_has_a_curve_and_a_strip_for_each_row(pictures, run):
    tree = ET.fromstring(pictures.draw_run(run, pictures.LIGHT))
    tags = [element.tag.rpartition("}")[2] for element in tree.iter()]
    assert tags.count("polyline") == 2
    assert tags.count("image") == 3


def test_picture_of_parts_names_fields_of_the_trainer(pictures):
    from kauldron import kd

    tree = ET.fromstring(pictures.draw_parts(pictures.DARK))
    texts = {element.text for element in tree.iter() if element.text}
    for name in ("train_ds", "model", "train_losses", "optimizer", "evals"):
        assert name in texts
        assert name in kd.train.Trainer.__dataclass_fields__
