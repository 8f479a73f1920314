"""Reading event files, also while they are written."""

import numpy as np
import pytest
from etils import epath

from kauldron.board.media import Media
from kauldron.writers.event_file import EventFile


@pytest.fixture
def events(tmp_path):
    files = EventFile(epath.Path(tmp_path / "train"))
    yield files
    files.close()


def test_growing_file_is_read_on(events, tmp_path):
    media = Media(tmp_path)
    assert media.items() == {}
    events.texts(1, {"said": "one"})
    events.flush()
    assert list(media.items()["text", "train/said"]) == [1]
    events.texts(2, {"said": "two"})
    events.scalars(3, {"loss": 1.0})
    events.flush()
    assert list(media.items()["text", "train/said"]) == [1, 2]
    assert media.load("text", "train/said", 2) == "two"


def test_contents_come_back_as_written(events, tmp_path):
    events.images(5, {"a": np.zeros((1, 4, 4, 3), np.uint8)})
    events.histograms(5, {"h": np.array([0.0, 1.0, 1.0])}, 2)
    events.flush()
    media = Media(tmp_path)
    assert media.load("image", "train/a", 5).startswith(b"\x89PNG")
    assert media.load("histogram", "train/h", 5) == {
        "edges": [0.0, 0.5, 1.0],
        "counts": [1.0, 2.0],
    }
    with pytest.raises(LookupError):
        media.load("image", "train/b", 5)


def test_steps_that_a_resumed_run_wrote_again_are_dropped(events, tmp_path):
    for step in (0, 10, 20):
        events.texts(step, {"said": f"first {step}"})
    events.restart_at(10)
    events.texts(10, {"said": "again"})
    events.flush()
    media = Media(tmp_path)
    assert list(media.items()["text", "train/said"]) == [0, 10]
    assert media.load("text", "train/said", 10) == "again"


def test_damaged_end_of_a_file_hides_nothing_before_it(events, tmp_path):
    events.texts(1, {"said": "one"})
    events.close()
    (path,) = (tmp_path / "train").iterdir()
    with path.open("ab") as file:
        file.write(b"\xff" * 40)
    assert list(Media(tmp_path).items()) == [("text", "train/said")]
