"""What the person who watches a run sees."""

import os
import pty
import re
import subprocess
import sys
import textwrap

import jax
import pytest

from kauldron.train.run import progress as progress_lib
from kauldron.train.run.progress import Progress
from tests.terminal_output import read_all
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
# In a terminal
#


def test_bar_reaches_the_end_however_fast_the_steps_are(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Progress("train", step=0, last_step=10) as progress:
        [task] = Progress._display.tasks
        for step in range(1, 9):
            progress.update(step)
        progress.doing("saving")
        assert task.completed == 8
        progress.update(9)
        progress.update(10)
        assert task.completed == 10


def test_what_happened_before_a_step_is_not_shown_while_it_runs(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = []
    with Progress("train", step=0, last_step=10) as progress:
        [task] = Progress._display.tasks
        for step in range(1, 4):
            progress.doing("saving")
            shown.append(task.fields["doing"])
            progress.resume()
            shown.append(task.fields["doing"])
            progress.update(step)
    assert shown == ["saving", "compiling", "saving", "training", "saving", "training"]


def test_first_step_after_a_checkpoint_is_shown_as_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("FORCE_COLOR", "1")
    seen = []

    def note(event, duration, **kwargs):
        is_compiled = event.endswith("backend_compile_duration")
        if is_compiled and Progress._display is not None:
            seen.append(Progress._display.tasks[0].fields["doing"])

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        make_trainer(tmp_path, num_train_steps=2).train()
    finally:
        jax.monitoring.clear_event_listeners()
    assert (tmp_path / "checkpoints/ckpt_0").exists()
    assert "compiling" in seen


def test_evaluation_is_a_second_line_of_the_same_display(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # to rich, that is a terminal
    monkeypatch.setattr(progress_lib, "_UPDATE_SECONDS", 0.0)
    with Progress("train", step=0, last_step=10) as outer:
        display = Progress._display
        outer.update(3, {"losses/total": 0.5})
        outer.doing("evaluating val")
        with Progress("val", step=0, last_step=4, activity="evaluating") as inner:
            assert Progress._display is display
            inner.update(2)
            shown = [(task.description, task.completed) for task in display.tasks]
        assert [task.description for task in display.tasks] == ["train"]
        [task] = display.tasks
        assert task.fields["values"] == "total=0.5"
        assert task.fields["doing"] == "evaluating val"
    assert shown == [("train", 3), ("val", 2)]
    assert Progress._display is None
    assert "train" in capsys.readouterr().err


def test_display_ends_with_the_run_that_fails(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with (
        pytest.raises(ValueError, match="in a step"),
        Progress("train", step=0, last_step=10),
    ):
        raise ValueError("in a step")
    assert Progress._display is None


PROGRAM = """
    from tests.train.toy import make_trainer
    import sys, time

    trainer = make_trainer(
        sys.argv[1], num_train_steps=300, log_metrics_every=50, checkpointer=None
    )
    slow = trainer.train_ds.map(lambda batch: (time.sleep(0.005), batch)[1])
    trainer.replace(train_ds=slow).train()
"""


@pytest.mark.slow
def test_terminal_shows_step_speed_loss_and_time_left(tmp_path):
    controller, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
    )
    os.close(terminal)
    output = read_all(controller)
    assert process.wait(timeout=120) == 0, output
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output)
    assert re.search(r"train \S+ +\d+/300 ", plain)
    assert re.search(r"\d steps/s +\d+:\d\d total=[\d.e-]+ training", plain)
    assert "compiling" in plain
