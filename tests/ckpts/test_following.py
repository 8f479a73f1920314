"""Following the checkpoints of a run."""

import itertools
import threading
import time

import pytest

from kauldron.ckpts import step_folders
from tests.ckpts.states import (
    assert_equal,
    files_below,
    make_checkpointer,
    make_state,
    save_steps,
)

SOON = {"seconds_to_sleep": 0.01}


def test_existing_newest_comes_at_once_and_then_only_newer_ones(tmp_path):
    writer = make_checkpointer(tmp_path, max_to_keep=None)
    save_steps(writer, [1, 3, 2])
    steps = make_checkpointer(tmp_path, create=False).iter_new_checkpoints(
        timeout=0, **SOON
    )
    assert next(steps) == 3
    save_steps(writer, [0])  # older than what was seen
    save_steps(writer, [4, 5, 7])  # while the consumer works
    assert next(steps) == 7
    assert list(steps) == []


def test_steps_are_current_when_one_is_yielded(tmp_path):
    writer = make_checkpointer(tmp_path)
    save_steps(writer, [1])
    reader = make_checkpointer(tmp_path, create=False)
    for step in reader.iter_new_checkpoints(timeout=0, **SOON):
        assert reader.latest_step == step
        if step < 4:
            save_steps(writer, [step + 1])
    assert step == 4


def test_follower_that_saves_knows_the_step_it_was_given(tmp_path):
    writer = make_checkpointer(tmp_path, max_to_keep=None)
    save_steps(writer, [1])
    follower = make_checkpointer(tmp_path, max_to_keep=None)
    assert follower.should_save(4)
    save_steps(writer, [5])
    assert next(follower.iter_new_checkpoints(**SOON)) == 5
    assert not follower.should_save(4)


def test_folder_need_not_exist_yet(tmp_path):
    workdir = tmp_path / "later"
    steps = make_checkpointer(workdir, create=False).iter_new_checkpoints(**SOON)
    thread = threading.Thread(target=save_steps, args=(make_checkpointer(workdir), [5]))
    thread.start()
    assert next(steps) == 5
    thread.join()


def test_after_the_timeout_the_function_decides(tmp_path):
    answers = iter([False, False, True])
    asked = []

    def is_over():
        asked.append(time.monotonic())
        return next(answers)

    reader = make_checkpointer(tmp_path, create=False)
    steps = reader.iter_new_checkpoints(timeout=0, timeout_fn=is_over, **SOON)
    assert list(steps) == []
    assert len(asked) == 3


def test_function_is_not_asked_before_the_timeout(tmp_path):
    save_steps(make_checkpointer(tmp_path), [1])
    reader = make_checkpointer(tmp_path, create=False)
    steps = reader.iter_new_checkpoints(timeout=1000, timeout_fn=pytest.fail, **SOON)
    assert next(steps) == 1


def test_checkpoint_committed_just_before_the_function_says_yes_is_not_missed(tmp_path):
    writer = make_checkpointer(tmp_path)

    def finish_training():
        if not writer.all_steps:
            save_steps(writer, [9])
        return True

    reader = make_checkpointer(tmp_path, create=False)
    steps = reader.iter_new_checkpoints(timeout=0, timeout_fn=finish_training, **SOON)
    assert list(steps) == [9]


class SimulatedClock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        assert seconds >= 0
        self.now += seconds


def test_least_time_between_two_steps_and_longest_wait(monkeypatch):
    clock = SimulatedClock()
    monkeypatch.setattr(step_folders, "time", clock)
    seen = []
    steps = step_folders.new_steps(
        lambda: int(clock.now),
        min_interval_secs=5,
        seconds_to_sleep=0.25,
        timeout=None,
        timeout_fn=None,
    )
    for step in itertools.islice(steps, 3):
        seen.append((step, clock.now))
        clock.now += 2  # the consumer works
    assert seen == [(0, 0), (5, 5), (10, 10)]
    stopped = step_folders.new_steps(
        lambda: None,
        min_interval_secs=0,
        seconds_to_sleep=4,
        timeout=10,
        timeout_fn=None,
    )
    begin = clock.now
    assert list(stopped) == []
    assert clock.now == begin + 10


def test_following_changes_nothing(tmp_path):
    save_steps(make_checkpointer(tmp_path), [1, 2])
    before = files_below(tmp_path)
    with make_checkpointer(tmp_path, create=False) as reader:
        for step in reader.iter_new_checkpoints(timeout=0, **SOON):
            assert_equal(reader.restore(make_state(), step=step), make_state(step))
    assert files_below(tmp_path) == before


def test_step_deleted_meanwhile_is_not_found(tmp_path):
    writer = make_checkpointer(tmp_path, max_to_keep=1)
    save_steps(writer, [1])
    reader = make_checkpointer(tmp_path, create=False)
    step = next(reader.iter_new_checkpoints(timeout=0, **SOON))
    save_steps(writer, [2])
    with pytest.raises(FileNotFoundError, match=r"step 1 .*Steps: 2"):
        reader.restore(make_state(), step=step)


def test_step_deleted_while_it_is_read_is_not_found(tmp_path, monkeypatch):
    save_steps(make_checkpointer(tmp_path), [1])
    reader = make_checkpointer(tmp_path, create=False)
    is_complete = step_folders.is_complete

    def look_then_delete(root, step):
        found = is_complete(root, step)
        step_folders.delete(root, step)
        return found

    monkeypatch.setattr(step_folders, "is_complete", look_then_delete)
    with pytest.raises(FileNotFoundError, match="ckpt_1 was deleted while it was read"):
        reader.restore(make_state(), step=1)


def test_old_snapshots_go_only_if_so_asked(tmp_path):
    root = tmp_path / "checkpoints"
    old = root / "_SNAPSHOTS-1700000000000000000"
    recent = root / f"_SNAPSHOTS-{time.time_ns()}"
    other = root / "_SNAPSHOTS-mine"
    for folder in (old, recent, other):
        (folder / "ckpt_1").mkdir(parents=True)
    list(make_checkpointer(tmp_path).iter_new_checkpoints(timeout=0))
    assert old.exists()
    cleaner = make_checkpointer(tmp_path, cleanup_orphaned_snapshots=True)
    list(cleaner.iter_new_checkpoints(timeout=0))
    assert not old.exists() and recent.exists() and other.exists()
