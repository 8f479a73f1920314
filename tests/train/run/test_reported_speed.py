"""The speed that is reported is that of the clock."""

import contextlib
import functools
import time
from typing import ClassVar

import flax.linen as nn
import jax
import numpy as np
import pytest

from kauldron import kd, writers
from kauldron.train.run import loop
from kauldron.train.run.chrono import Chrono
from kauldron.train.run.terminal.progress import Progress
from tests.train.toy import Linear, make_ds, make_trainer, step_fields

NUM_STEPS = 24
SECONDS = 0.02


class Slow(Linear):
    """Keeps the device, not the host, busy for a while."""

    @nn.compact
    def __call__(self, x):
        y = nn.Dense(self.size, name="dense")(x)

        def wait(y):
            time.sleep(SECONDS)
            return y

        shape = jax.ShapeDtypeStruct(y.shape, y.dtype)
        slow = jax.custom_jvp(lambda y: jax.pure_callback(wait, shape, y))
        slow.defjvp(lambda primals, tangents: (slow(*primals), *tangents))
        return {"y": slow(y)}


@functools.cache
def _slow_step():
    """All trainers share it, and so its programs."""
    return step_fields(make_trainer("unused", model=Slow(x="batch.x")))


class SlowWriter(kd.train.NoopWriter):
    def write_scalars(self, step, scalars):
        time.sleep(SECONDS)


@pytest.mark.parametrize(
    "changes",
    [
        {"log_metrics_every": 1},
        {"log_metrics_every": 7},
        {
            "log_metrics_every": 2,
            "writer": kd.train.MultiWriter(
                writers=[SlowWriter(), kd.train.KDMetricWriter()]
            ),
        },
        {"log_metrics_every": 8, "steps_per_dispatch": 4},
        {
            "log_metrics_every": 8,
            "checkpointer": kd.ckpts.Checkpointer(save_interval_steps=5),
            "evals": {"eval": kd.evals.Evaluator(run=kd.evals.EveryNSteps(6))},
        },
    ],
)
def test_steps_by_reported_speed_take_the_time_of_the_clock(
    tmp_path, monkeypatch, changes
):
    """Evaluations and checkpoints apart, which are reported for themselves."""
    clock = Clock(monkeypatch)
    trainer = make_trainer(
        tmp_path,
        num_train_steps=NUM_STEPS,
        eval_ds=make_ds(num_epochs=1, shuffle=False),
        **({"checkpointer": None} | changes),
    )
    trainer.replace(**_slow_step()).train()
    reported = _reported_seconds(tmp_path)
    assert reported >= NUM_STEPS * SECONDS  # no step is done in less
    np.testing.assert_allclose(reported, clock.seconds, rtol=0.03)


class Clock:
    """Measures the loop from its start to its last log, less evaluations and saves."""

    def __init__(self, monkeypatch):
        start_loop, flush = Chrono.start_loop, Chrono.flush_metrics
        pause = Chrono.pause

        def start(chrono):
            self.seconds = self.paused = 0.0
            self.began = time.perf_counter()
            start_loop(chrono)

        def stop(chrono):
            self.seconds = time.perf_counter() - self.began - self.paused
            return flush(chrono)

        @contextlib.contextmanager
        def measured_pause(chrono, report_as=None):
            start = time.perf_counter()
            with pause(chrono, report_as) as running:
                yield running
            self.paused += time.perf_counter() - start

        monkeypatch.setattr(Chrono, "start_loop", start)
        monkeypatch.setattr(Chrono, "flush_metrics", stop)
        monkeypatch.setattr(Chrono, "pause", measured_pause)


def _reported_seconds(workdir):
    seconds, last = 0.0, -1
    for line in writers.read_scalars(workdir / "train"):
        if "perf_stats/steps_per_sec" in line["values"]:
            seconds += (line["step"] - last) / line["values"][
                "perf_stats/steps_per_sec"
            ]
            last = line["step"]
    assert last == NUM_STEPS - 1
    return seconds


class Shown(Progress):
    """Remembers the speed that was shown."""

    speeds: ClassVar[list[float]] = []

    def update(self, step, values=None, *, speed=None, **more):
        self.speeds.append(speed)
        super().update(step, values, speed=speed, **more)


def test_bar_shows_the_speed_of_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "Progress", Shown)
    trainer = make_trainer(tmp_path, log_metrics_every=2, checkpointer=None)
    trainer.train()
    logged = [
        line["values"]["perf_stats/steps_per_sec"]
        for line in writers.read_scalars(tmp_path / "train")
        if "perf_stats/steps_per_sec" in line["values"]
    ]
    assert len(logged) == 6
    # The last value is logged after the last step was shown.
    assert set(logged[:-1]) <= {speed for speed in Shown.speeds if speed}
