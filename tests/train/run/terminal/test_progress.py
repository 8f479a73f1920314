"""What the person who watches a run sees."""

import io
import re
import sys

import jax
import pytest

from kauldron.train.run.terminal import panel
from kauldron.train.run.terminal import progress as progress_lib
from kauldron.train.run.terminal.progress import Progress
from tests.train.toy import make_trainer

#
# Where there is no terminal
#


@pytest.fixture
def lines(monkeypatch, caplog):
    """The lines that are logged; none is held back because it comes too soon."""
    monkeypatch.setattr(progress_lib, "_PLAIN_LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress_lib, "_UPDATE_SECONDS", 0.0)
    with caplog.at_level("INFO", logger="kauldron"):
        yield lambda: [record.getMessage() for record in caplog.records]


def test_plain_lines_come_after_a_twentieth_of_the_steps(lines):
    with Progress("train", step=100, last_step=200) as progress:
        for step in range(101, 112):
            progress.update(step, {"losses/total": 0.25, "losses/a": 1.0})
    assert [re.sub(r"[\d.e+]+ steps/s", "N steps/s", line) for line in lines()] == [
        "train: step 105 of 200, N steps/s total=0.25",
        "train: step 110 of 200, N steps/s total=0.25",
    ]


def test_run_of_unknown_length_tells_the_step(lines):
    with Progress("train", step=0, last_step=None) as progress:
        progress.update(1)
    [line] = lines()
    assert re.fullmatch(r"train: step 1, [\d.e+]+ steps/s", line)


def test_lines_are_at_least_a_minute_apart(monkeypatch, caplog):
    now = 0.0
    monkeypatch.setattr(progress_lib.time, "monotonic", lambda: now)
    with (
        caplog.at_level("INFO", logger="kauldron"),
        Progress("train", step=0, last_step=10) as progress,
    ):
        for step in range(1, 11):
            now += 25.0
            progress.update(step)
    told = [record.getMessage() for record in caplog.records]
    assert [line.split(",")[0] for line in told] == [
        "train: step 3 of 10",
        "train: step 6 of 10",
        "train: step 9 of 10",
    ]
    assert told[0] == "train: step 3 of 10, 0.04 steps/s"


#
# What the line shows
#


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Puts a terminal in the place of stderr, for what runs in this process."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def open_terminal():  # inside the test: pytest has a stderr for each phase of it
        stream = _Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return open_terminal


def _line(width=100):
    return panel.current()._line(width).plain


def test_line_is_up_to_date_however_fast_the_steps_are(terminal):
    terminal()
    with Progress("train", step=0, last_step=10) as progress:
        for step in range(1, 9):
            progress.update(step)
        progress.doing("saving")
        assert " 8/10 " in _line()
        progress.update(10)
        assert "10/10 " in _line()


def test_what_happened_before_a_step_is_not_shown_while_it_runs(terminal):
    terminal()
    shown = []
    with Progress("train", step=0, last_step=10) as progress:
        for step in range(1, 4):
            progress.doing("saving")
            shown.append(_line().split()[-1])
            progress.resume()
            shown.append(_line().split()[-1])
            progress.update(step)
    assert shown == ["saving", "compiling", "saving", "training", "saving", "training"]


def test_every_program_is_shown_as_compiled(terminal, tmp_path):
    terminal()
    seen = []

    def note(event, duration, **kwargs):
        if event.endswith("backend_compile_duration") and panel.current():
            seen.append(_line().split()[-1])

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        changes = {"num_train_steps": 8, "log_metrics_every": 4}
        make_trainer(tmp_path, shares_step=False, **changes).train()
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert (tmp_path / "checkpoints/ckpt_0").exists()
    assert seen.count("compiling") >= 2  # steps that log, and the others
    assert "training" not in seen


def test_time_of_compilation_does_not_count_for_the_time_left(terminal, monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress_lib.time, "monotonic", lambda: now)
    terminal()
    with Progress("train", step=0, last_step=1010) as progress:
        now = 100.0
        progress.update(10, speed=0.1)  # 100 seconds, most of them to compile
        assert "left" not in _line()
        now = 102.0
        progress.update(30, speed=0.3)
        assert " 10 steps/s  1:38 left" in _line()
        now = 112.0
        progress.update(130, speed=9.0)  # a window after it
        assert " 9 steps/s" in _line()
        progress.doing("compiling")
        now = 150.0
        progress.update(131, speed=3.0)
        assert "left" not in _line()


def test_evaluation_is_told_at_the_end_of_the_line(terminal):
    terminal()
    with Progress("train", step=0, last_step=10) as outer:
        outer.update(3, {"losses/total": 0.5})
        outer.doing("evaluating val")
        with Progress("val", step=0, last_step=4, activity="evaluating") as inner:
            inner.update(2)
            assert _line().endswith("  evaluating val 2/4")
        assert _line().endswith("  total=0.5  evaluating val")
    assert panel.current() is None


def test_line_says_what_the_data_waits_for(terminal):
    terminal()
    with Progress("train", step=0, last_step=100) as progress:
        stage = "transforms[0] Resize"
        progress.update(10, data_wait=0.1, slowest_stage=stage)
        assert "data wait 10 %  training" in _line(200)
        progress.update(10, data_wait=0.5, slowest_stage=stage)
        assert "data wait 50 % (transforms[0] Resize)  training" in _line(200)


def test_bar_keeps_its_length_whatever_happens(terminal):
    terminal()
    with Progress("train", step=0, last_step=100) as progress:
        progress.update(50, speed=10.0, data_wait=0.1)
        lengths = set()
        for what in ("saving", "training", "reading data", "evaluating test"):
            progress.doing(what)
            lengths.add(len(re.search("[━╸─]+", _line(80))[0]))
    assert len(lengths) == 1


@pytest.mark.parametrize("width", range(1, 120, 7))
def test_line_is_never_longer_than_the_terminal_is_wide(terminal, width):
    terminal()
    with Progress("train", step=0, last_step=10_000_000) as progress:
        progress.update(
            1234567, {"losses/total": 0.5}, speed=0.123456, data_wait=0.51234
        )
        line = _line(width)
    assert len(line) <= width
    assert width < 60 or line.endswith("training")


def test_display_ends_with_the_run_that_fails(terminal):
    stream = terminal()
    with (
        pytest.raises(ValueError, match="in a step"),
        Progress("train", step=0, last_step=10),
    ):
        raise ValueError("in a step")
    assert panel.current() is None
    assert stream.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # as it was
    assert sys.stderr is stream
