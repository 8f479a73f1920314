"""Saves that fail: full disks, folders without permission, folders removed."""

import contextlib
import logging
import pathlib
import resource
import shutil
import subprocess
import sys

import pytest

from kauldron import kd
from kauldron.ckpts import orbax_io, save_session
from tests.ckpts.states import (
    full,
    make_checkpointer,
    make_state,
    random_array,
    save_steps,
    without_permission,
)
from tests.train.toy import CONFIG

# Writers that failed leave tasks behind, which say so when they are collected.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


def _large(step):
    """A state that does not fit while the disk is full."""
    params = {"w": random_array(100_000, seed=step)}
    return kd.train.TrainState(step=full((), step), params=params)


@contextlib.contextmanager
def full_disk():
    """Files cannot grow beyond a few kilobytes: what a full disk looks like."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _names(workdir):
    return sorted(path.name for path in (workdir / "checkpoints").iterdir())


@pytest.mark.parametrize("how", ["wait_until_finished", "close", "save"])
def test_background_failure_is_raised_once_with_step_and_path(tmp_path, how):
    checkpointer = make_checkpointer(tmp_path)
    save_steps(checkpointer, [1])
    with full_disk():
        assert checkpointer.save(_large(2), step=2) is True
        with pytest.raises(Exception, match=r"Saving .*checkpoints/ckpt_2 failed: .*"):
            if how == "save":
                checkpointer.save(_large(3), step=3)
            else:
                getattr(checkpointer, how)()
    checkpointer.close()
    assert checkpointer.all_steps == [1]
    assert _names(tmp_path) == ["ckpt_1"]


def test_step_that_failed_is_not_there_and_can_be_saved_again(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    save_steps(checkpointer, [1])
    with full_disk(), pytest.raises(Exception, match="too large"):
        checkpointer.save(_large(2), step=2)
        assert not checkpointer.should_save(2)
        checkpointer.wait_until_finished()
    assert checkpointer.latest_step == 1
    assert checkpointer.should_save(2)
    assert checkpointer.save(_large(2), step=2) is True
    checkpointer.close()
    assert checkpointer.all_steps == [1, 2]


@pytest.mark.parametrize("enable_async", [True, False])
def test_with_warn_training_goes_on_and_the_next_save_works(
    tmp_path, caplog, enable_async
):
    checkpointer = make_checkpointer(
        tmp_path, on_save_error="warn", enable_async=enable_async
    )
    save_steps(checkpointer, [1])
    with full_disk(), caplog.at_level(logging.WARNING, "kauldron"):
        assert checkpointer.save(_large(2), step=2) is enable_async
        checkpointer.wait_until_finished()
    assert "ckpt_2 failed" in caplog.text and "goes on" in caplog.text
    assert checkpointer.all_steps == [1]
    save_steps(checkpointer, [3])
    assert checkpointer.all_steps == [1, 3]


def test_without_any_checkpoint_a_failure_is_not_repeated_at_every_step(tmp_path):
    checkpointer = make_checkpointer(
        tmp_path, save_interval_steps=4, on_save_error="warn"
    )
    with full_disk():
        assert checkpointer.should_save(0)
        checkpointer.save(_large(0), step=0)
        checkpointer.wait_until_finished()
    assert [step for step in range(1, 9) if checkpointer.should_save(step)] == [4, 8]


def test_folder_without_permission_is_told_with_its_path():
    with without_permission(0o555) as (workdir, applied):
        checkpointer = make_checkpointer(workdir)
        save_steps(checkpointer, [1])
        with applied(), pytest.raises(PermissionError, match="checkpoints/ckpt_2"):
            checkpointer.save(make_state(2), step=2)
        save_steps(checkpointer, [2])
        assert checkpointer.all_steps == [1, 2]


def test_file_in_the_place_of_the_folder_is_told_with_its_path(tmp_path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(FileExistsError, match="checkpoints"):
        make_checkpointer(tmp_path).save(make_state(), step=0)


def test_folder_removed_during_a_run_is_told(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    save_steps(checkpointer, [1])
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(FileNotFoundError, match="checkpoints was removed"):
        checkpointer.save(make_state(2), step=2)
    assert not (tmp_path / "checkpoints").exists()


def test_folder_removed_with_warn_is_made_again_by_the_next_save(tmp_path, caplog):
    checkpointer = make_checkpointer(tmp_path, on_save_error="warn")
    save_steps(checkpointer, [1])
    shutil.rmtree(tmp_path / "checkpoints")
    assert checkpointer.save(make_state(2), step=2) is False
    assert "was removed" in caplog.text
    save_steps(checkpointer, [3])
    assert checkpointer.all_steps == [3]


def _failing(monkeypatch, error, times):
    """Let starting a save fail a number of times; returns the waits in between."""
    start = orbax_io.start_save
    failures, waits = iter([error] * times), []

    def start_save(*args, **kwargs):
        for failure in failures:
            raise failure
        return start(*args, **kwargs)

    monkeypatch.setattr(orbax_io, "start_save", start_save)
    monkeypatch.setattr(save_session.time, "sleep", waits.append)
    return waits


@pytest.mark.parametrize(
    "error",
    [OSError(5, "Input/output error"), TimeoutError("barrier")],
    ids=lambda error: type(error).__name__,
)
def test_errors_that_may_pass_are_tried_three_times(tmp_path, monkeypatch, error):
    checkpointer = make_checkpointer(tmp_path)
    waits = _failing(monkeypatch, error, times=2)
    assert checkpointer.save(make_state(), step=0) is True
    checkpointer.close()
    assert checkpointer.all_steps == [0]
    assert len(waits) == 2 and all(1 <= wait <= 5 for wait in waits)
    _failing(monkeypatch, error, times=3)
    with pytest.raises(type(error)):
        checkpointer.save(make_state(1), step=1)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "no"), TypeError("bug"), ValueError("bug")]
)
def test_errors_that_cannot_pass_surface_at_once(tmp_path, monkeypatch, error):
    waits = _failing(monkeypatch, error, times=1)
    with pytest.raises(type(error)):
        make_checkpointer(tmp_path).save(make_state(), step=0)
    assert waits == []


def test_bug_in_an_item_surfaces_also_with_warn(tmp_path, monkeypatch):
    _failing(monkeypatch, TypeError("bug"), times=1)
    with pytest.raises(TypeError, match="bug"):
        make_checkpointer(tmp_path, on_save_error="warn").save(make_state(), step=0)


def test_old_checkpoint_that_cannot_be_deleted_is_only_a_warning(
    tmp_path, monkeypatch, caplog
):
    from kauldron.ckpts import step_folders

    def busy(root, step):
        raise OSError(16, "Device or resource busy", f"{root}/ckpt_{step}")

    checkpointer = make_checkpointer(tmp_path, max_to_keep=1)
    save_steps(checkpointer, [1])
    monkeypatch.setattr(step_folders, "delete", busy)
    save_steps(checkpointer, [2])
    assert "busy" in caplog.text and "ckpt_1" in caplog.text
    assert checkpointer.all_steps == [1, 2]


def test_failing_policy_is_told_and_deletes_nothing(tmp_path):
    class Failing:
        def should_preserve(self, checkpoints, *, context):
            raise KeyError("accuracy")

    checkpointer = make_checkpointer(tmp_path, preservation_policy=Failing())
    checkpointer.save(make_state(1), step=1)
    with pytest.raises(KeyError, match="accuracy"):
        checkpointer.wait_until_finished()
    assert checkpointer.all_steps == [1]


def test_what_tensorstore_leaves_to_asyncio_is_not_told_again(caplog):
    never_raised = ValueError("Error writing params/0")
    info = (ValueError, never_raised, None)
    logging.getLogger("asyncio").error("Future was never retrieved", exc_info=info)
    assert not caplog.records
    logging.getLogger("asyncio").error("of others")
    assert [record.message for record in caplog.records] == ["of others"]


WITH_A_FULL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
from kauldron.main import main
sys.exit(main(sys.argv[1:]))
"""
ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.slow
def test_command_whose_saves_all_fail_says_so_in_a_few_lines(tmp_path, fast_python):
    (tmp_path / "config.py").write_text(CONFIG)
    arguments = {
        "--cfg": f"{tmp_path}/config.py:10000",
        "--cfg.workdir": tmp_path / "run",
        "--cfg.num_train_steps": 20,
        "--cfg.checkpointer.on_save_error": "warn",
        "--cfg.checkpointer.never_save_step_zero": True,
    }
    process = subprocess.run(
        [
            *(sys.executable, "-c", WITH_A_FULL_DISK, "train"),
            *(f"{name}={value}" for name, value in arguments.items()),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1, process.stderr
    assert "Everything is in" not in process.stdout
    lines = process.stderr.splitlines()
    assert sum("ckpt_" in line and "failed" in line for line in lines) == 5
    assert "Traceback" not in process.stderr and len(lines) < 15, process.stderr
    assert "Step 20 could not be saved: the run is not complete" in lines[-1]
