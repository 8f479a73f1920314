"""The thread that reads ahead: order, errors, being closed, being waited for."""

import dataclasses
import os
import signal
import threading
import time
import traceback
import types

import numpy as np
import pytest

from kauldron import kd
from kauldron.data.engine import costs
from kauldron.train.run import feed as feeder_module
from kauldron.train.run import loop as loop_module
from kauldron.train.run.feed import Feeder
from kauldron.train.run.terminal import progress as progress_module
from tests.train.toy import make_byte_ds, make_ds, make_trainer


class Numbers:
    """An iterator with a position; fails or ends where it is told to."""

    def __init__(self, end=10, error=None):
        self.position, self.end, self.error, self.is_closed = 0, end, error, False

    def __next__(self):
        if self.position >= self.end:
            if self.error is not None:
                raise self.error
            raise StopIteration
        self.position += 1
        return {"x": np.full((2,), self.position)}

    def get_state(self):
        return {"next": self.position}

    def close(self):
        self.is_closed = True


class OneByOne:
    """Takes batches one by one, and leaves them on the host."""

    records = None
    in_calls = False

    def size_at(self, step):
        return 1

    def put(self, batch, size):
        return batch


class FourThenOnes(OneByOne):
    """The first dispatch takes four batches."""

    def size_at(self, step):
        return 1 if step else 4


def _feeder(iterator, **kwargs):
    return Feeder(iterator, OneByOne(), step=0, **kwargs)


@pytest.mark.parametrize("depth", [0, 2])
def test_feeds_come_in_order_and_end_once(depth):
    feeder = _feeder(Numbers(5), depth=depth)
    assert [int(feed.batch["x"][0]) for feed in feeder] == [1, 2, 3, 4, 5]
    with pytest.raises(StopIteration):
        next(feeder)
    feeder.close()


def test_what_waits_in_the_queue_is_not_consumed():
    numbers = Numbers(10)
    feeder = _feeder(numbers, depth=3)
    assert feeder.get_state() == {"next": 0}
    next(feeder)
    _wait_until(lambda: numbers.position >= 4)
    assert feeder.get_state() == {"next": 1}
    feeder.close()


def test_short_feeds_are_prepared_until_enough_batches_wait():
    """So that many short dispatches are ready when a long one ends."""
    numbers = Numbers(50)
    feeder = Feeder(numbers, FourThenOnes(), step=0, depth=5)
    assert next(feeder).size == 4
    _wait_until(lambda: numbers.position >= 9)  # five single ones
    assert next(feeder).size == 1
    _wait_until(lambda: numbers.position >= 10)
    feeder.close()
    assert numbers.position == 10


def test_nothing_is_read_before_it_is_asked_for(new_threads):
    numbers = Numbers(10)
    feeder = _feeder(numbers)
    assert new_threads() == []
    feeder.close()
    assert numbers.position == 0


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_error_of_the_data_arrives_with_its_own_traceback(depth, kind, new_threads):
    feeder = _feeder(Numbers(2, error=kind("record 7 is broken")), depth=depth)
    next(feeder), next(feeder)
    for _ in range(2):  # also when asked again
        with pytest.raises(kind, match="record 7 is broken") as caught:
            next(feeder)
    lines = "".join(traceback.format_tb(caught.value.__traceback__))
    assert "raise self.error" in lines
    feeder.close()
    assert new_threads() == []


def test_closing_ends_the_thread_and_the_iterator(new_threads):
    numbers = Numbers(10**9)
    feeder = _feeder(numbers)
    next(feeder)
    feeder.close()
    feeder.close()
    assert numbers.is_closed and new_threads() == []


def test_source_that_does_not_return_is_left_behind(monkeypatch, caplog, new_threads):
    monkeypatch.setattr(feeder_module, "_PATIENCE_SECONDS", 0.05)
    release = threading.Event()

    class Stuck(Numbers):
        def __next__(self):
            if self.position == 1:
                release.wait()
            return super().__next__()

    stuck = Stuck()
    feeder = _feeder(stuck)
    next(feeder)
    with caplog.at_level("WARNING", logger="kauldron"):
        feeder.close()
    assert "does not answer" in caplog.text and not stuck.is_closed
    release.set()
    _wait_until(lambda: new_threads() == [])


def test_waiting_for_data_can_be_interrupted(new_threads):
    release = threading.Event()

    class Slow(Numbers):
        def __next__(self):
            release.wait()
            return super().__next__()

    def give_up():
        release.set()
        raise TimeoutError("enough")

    feeder = _feeder(Slow(), while_waiting=give_up)
    with pytest.raises(TimeoutError, match="enough"):
        next(feeder)
    feeder.close()
    assert new_threads() == []


#
# In a run
#


class Failing(kd.data.Pipeline):
    """Its third batch cannot be read."""

    def __iter__(self):
        for index in range(99):
            if index == 2:
                raise OSError("shard 12 is gone")
            yield {"x": np.ones((16, 4), np.float32), "y": np.ones((16, 2), np.float32)}


def test_error_of_the_data_ends_the_run_with_its_own_words(tmp_path, new_threads):
    trainer = make_trainer(
        tmp_path,
        train_ds=Failing(batch_size=16),
        log_metrics_every=1,
        checkpointer=None,
    )
    with pytest.raises(OSError, match="shard 12 is gone") as caught:
        trainer.train()
    assert "in __iter__" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert new_threads() == []


def test_runs_leave_no_thread_behind(tmp_path):
    before = set(threading.enumerate())
    make_trainer(tmp_path / "a", num_train_steps=3, checkpointer=None).train()
    evals = {"e": kd.evals.Evaluator(run=kd.evals.Once(1), ds=make_ds(), num_batches=2)}
    trainer = make_trainer(
        tmp_path / "b", num_train_steps=3, evals=evals, checkpointer=None
    )
    trainer.train()
    _wait_until(lambda: set(threading.enumerate()) <= before)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Stalling(kd.data.Pipeline):
    """Stalls after some batches until it is released."""

    stalls: threading.Event
    released: threading.Event

    def __iter__(self):
        for index in range(99):
            if index == 3:
                self.stalls.set()
                self.released.wait()
            yield {"x": np.ones((16, 4), np.float32), "y": np.ones((16, 2), np.float32)}


class Reached(kd.evals.EvaluatorBase):
    """Says that its step is reached."""

    event: threading.Event

    def evaluate(self, state, step):
        self.event.set()


@pytest.mark.slow
def test_run_that_waits_for_data_can_be_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(feeder_module, "_PATIENCE_SECONDS", 0.05)
    stalls, released, reached = (threading.Event() for _ in range(3))
    ds = Stalling(batch_size=16, stalls=stalls, released=released)
    evals = {"reached": Reached(run=kd.evals.Once(3), event=reached)}
    trainer = make_trainer(tmp_path, train_ds=ds, evals=evals)

    def stop():
        stalls.wait()
        reached.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    try:
        with pytest.raises(kd.train.Preempted) as caught:
            trainer.train()
    finally:
        released.set()
    assert caught.value.step == trainer.checkpointer.latest_step == 3
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def _wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def waits(monkeypatch, caplog):
    """Lets a hint see that so much of some seconds was waited; returns how often it spoke."""
    now = 0.0
    monkeypatch.setattr(feeder_module.time, "monotonic", lambda: now)

    def write(hint, fraction, seconds=6.0):
        nonlocal now
        now += seconds
        hint.add({"data_wait_fraction": fraction})
        for thread in threading.enumerate():
            if thread.name == "data-wait":
                thread.join()
        return len(caplog.messages)

    return write


def test_training_that_waits_for_data_is_told_once(waits, caplog, tmp_path):
    trainer = types.SimpleNamespace(workdir=tmp_path, train_ds=Failing(batch_size=16))
    hint = feeder_module.DataWaitHint(trainer)
    hint.add({})
    assert [waits(hint, 0.5) for _ in range(3)] == [0, 0, 0]
    assert waits(hint, 0.1) == 0  # from the start
    assert [waits(hint, 0.5) for _ in range(6)] == [0, 0, 0, 0, 1, 1]
    assert waits(hint, 0.1) == 1
    assert [waits(hint, 0.5, 100.0) for _ in range(4)] == [1, 1, 1, 1]
    [message] = caplog.messages
    assert message.startswith("Training waits for data 50 % of the time. What each")
    assert message.endswith(f"kauldron data profile --cfg={tmp_path}")


class Slow(kd.data.MapTransform):
    """Takes long for a transform."""

    def map(self, element):
        return {**element, "sum": sum(range(200_000))}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_slowest_stage_is_named_when_training_waits(
    waits, caplog, monkeypatch, tmp_path, num_workers
):
    monkeypatch.setattr(costs, "num_usable_cores", lambda: 8)
    ds = make_byte_ds(num_workers=num_workers, device_transforms=True)
    scale = ds.transforms[0]
    ds = dataclasses.replace(ds, transforms=[Slow(), scale])
    hint = feeder_module.DataWaitHint(
        types.SimpleNamespace(workdir=tmp_path, train_ds=ds),
        transforms=kd.data.DeviceTransforms.of(ds),
    )
    for _ in range(5):
        waits(hint, 0.5, 100.0)
    [message] = caplog.messages
    assert "The slowest stage is transforms[0] Slow: " in message
    advice = "`cfg.train_ds.num_workers='auto'` takes 6 worker processes"
    assert (advice in message) == (num_workers == 0)
    assert hint.slowest == "transforms[0] Slow"


def test_the_progress_hears_of_the_slowest_stage(tmp_path, monkeypatch):
    shown = set()

    class Known(feeder_module.DataWaitHint):
        slowest = property(lambda self: "batching", lambda self, value: None)

    class Seen(progress_module.Progress):
        def update(self, *args, slowest_stage=None, **kwargs):
            shown.add(slowest_stage)
            super().update(*args, slowest_stage=slowest_stage, **kwargs)

    monkeypatch.setattr(loop_module, "DataWaitHint", Known)
    monkeypatch.setattr(loop_module, "Progress", Seen)
    make_trainer(tmp_path, num_train_steps=2, checkpointer=None).train()
    assert shown == {"batching"}
