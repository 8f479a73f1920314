"""Traces that a run leaves behind."""

import threading

import jax
import pytest

from kauldron import kd, status
from kauldron.train.run import profiler as profiler_lib
from kauldron.train.run.dispatch import Dispatcher
from tests.train.toy import make_trainer

WITH_OPTIMIZATIONS = False


class FakeTrace:
    """Stands in for the device's tracer, which takes seconds to start."""

    def __init__(self, monkeypatch, error=None):
        self.events = []
        self.now = 0.0
        self.error = error
        monkeypatch.setattr(jax.profiler, "start_trace", self.start)
        monkeypatch.setattr(jax.profiler, "stop_trace", self.stop)
        monkeypatch.setattr(profiler_lib.time, "monotonic", lambda: self.now)

    def start(self, folder, *, profiler_options):
        self.traces_python = bool(profiler_options.python_tracer_level)
        self.events.append("start")
        if self.error is not None:
            raise self.error

    def stop(self):
        self.events.append("stop")

    def run(self, session, steps, secs_per_step=1.0):
        """Events by step, of a loop over these steps."""
        found = {}
        for step in steps:
            self.now += secs_per_step
            before = len(self.events)
            if session.is_due(step):
                session.after_step(step)
            for event in self.events[before:]:
                found[step] = event
        return found


def make_profiler(**kwargs):
    return kd.inspect.Profiler(**({"workdir": "unused"} | kwargs))


def test_session_starts_at_first_profile_and_ends_when_both_limits_are_reached(
    monkeypatch,
):
    trace = FakeTrace(monkeypatch)
    by_time = make_profiler(num_profile_steps=5, profile_duration_ms=8_000)
    assert trace.run(by_time.start(0), range(1, 30)) == {10: "start", 18: "stop"}
    by_steps = make_profiler(num_profile_steps=5, profile_duration_ms=3_000)
    assert trace.run(by_steps.start(0), range(1, 30)) == {10: "start", 15: "stop"}


@pytest.mark.parametrize(
    "limits",
    [
        {"num_profile_steps": None, "profile_duration_ms": 2_000},
        {"num_profile_steps": 2, "profile_duration_ms": None},
    ],
)
def test_none_is_no_limit(monkeypatch, limits):
    trace = FakeTrace(monkeypatch)
    events = trace.run(make_profiler(**limits).start(0), range(1, 30))
    assert events == {10: "start", 12: "stop"}


def test_two_limits_of_none_would_never_end():
    with pytest.raises(ValueError, match="num_profile_steps"):
        make_profiler(num_profile_steps=None, profile_duration_ms=None)


def test_first_profile_counts_from_the_first_step_of_the_process(monkeypatch):
    trace = FakeTrace(monkeypatch)
    profiler = make_profiler(first_profile=3, profile_duration_ms=None)
    assert trace.run(profiler.start(500), range(501, 520)) == {
        503: "start",
        508: "stop",
    }


def test_sessions_come_again_by_steps_or_by_time(monkeypatch):
    trace = FakeTrace(monkeypatch)
    limits = {"num_profile_steps": 1, "profile_duration_ms": None, "first_profile": 2}
    both = make_profiler(every_steps=100, every_secs=7.0, **limits)
    assert list(trace.run(both.start(0), range(1, 20))) == [2, 3, 9, 10, 16, 17]
    both = make_profiler(every_steps=5, every_secs=1e9, **limits)
    assert list(trace.run(both.start(0), range(1, 14))) == [2, 3, 7, 8, 12, 13]
    never = make_profiler(every_steps=None, every_secs=None, **limits)
    assert list(trace.run(never.start(0), range(1, 50))) == [2, 3]


def test_failure_to_start_is_logged_and_tried_again_later(monkeypatch, caplog):
    trace = FakeTrace(monkeypatch, error=RuntimeError("busy"))
    profiler = make_profiler(first_profile=2, every_steps=4, every_secs=None)
    with caplog.at_level("WARNING", logger="kauldron"):
        events = trace.run(profiler.start(0), range(1, 9))
    assert events == {2: "start", 6: "start"}
    assert "busy" in caplog.text


def test_open_session_is_closed_once(monkeypatch):
    trace = FakeTrace(monkeypatch)
    session = make_profiler(first_profile=1).start(0)
    trace.run(session, [1])
    session.close()
    session.close()
    assert trace.events == ["start", "stop"]


def test_trace_that_cannot_be_written_is_logged(monkeypatch, caplog):
    trace = FakeTrace(monkeypatch)

    def fail():
        raise OSError("no space left")

    monkeypatch.setattr(jax.profiler, "stop_trace", fail)
    session = make_profiler(first_profile=1).start(0)
    trace.run(session, [1])
    with caplog.at_level("WARNING", logger="kauldron"):
        session.close()
    assert "no space left" in caplog.text


@pytest.mark.parametrize("trace_python", [False, True])
def test_python_calls_are_recorded_only_if_asked(monkeypatch, trace_python):
    trace = FakeTrace(monkeypatch)
    session = make_profiler(first_profile=1, trace_python=trace_python).start(0)
    trace.run(session, [1])
    session.close()
    assert trace.traces_python == trace_python


def test_notebooks_are_profiled_only_if_asked(monkeypatch):
    trace = FakeTrace(monkeypatch)
    monkeypatch.setattr(status, "on_notebook", True, raising=False)
    assert trace.run(make_profiler(first_profile=1).start(0), [1, 2]) == {}
    asked = make_profiler(first_profile=1, on_colab=True)
    assert trace.run(asked.start(0), [1, 2]) == {1: "start"}


def test_only_the_lead_host_records_unless_all_shall(monkeypatch):
    trace = FakeTrace(monkeypatch)
    monkeypatch.setattr(status, "is_lead_host", False, raising=False)
    assert trace.run(make_profiler(first_profile=1).start(0), [1, 2]) == {}
    asked = make_profiler(first_profile=1, all_host=True)
    assert trace.run(asked.start(0), [1, 2]) == {1: "start"}


def test_traces_start_and_end_in_the_loop_while_the_devices_are_idle(
    tmp_path, monkeypatch
):
    """CUPTI breaks kernels that run while a trace ends."""
    tokens, idle, threads = [], [], []
    run = Dispatcher.run

    def run_and_keep(*args):
        result = run(*args)
        tokens.append(result.token)
        return result

    def look(*args, **kwargs):
        idle.append(all(token.is_ready() for token in tokens))
        threads.append(threading.current_thread())

    monkeypatch.setattr(Dispatcher, "run", run_and_keep)
    monkeypatch.setattr(jax.profiler, "start_trace", look)
    monkeypatch.setattr(jax.profiler, "stop_trace", look)
    profiler = kd.inspect.Profiler(first_profile=2, num_profile_steps=3)
    make_trainer(tmp_path, profiler=profiler, num_train_steps=9).train()
    assert idle == [True, True]
    assert set(threads) == {threading.current_thread()}
    assert len(tokens) == 9


def test_a_default_trace_takes_few_steps(monkeypatch):
    trace = FakeTrace(monkeypatch)
    events = trace.run(make_profiler().start(0), range(1, 99), secs_per_step=1e-6)
    assert events == {10: "start", 15: "stop"}


def test_loop_driven_by_hand(monkeypatch):
    trace = FakeTrace(monkeypatch)
    profiler = make_profiler(first_profile=2)
    for step in range(4):
        profiler(step)
    assert trace.events == ["start"]
    profiler.close()
    assert trace.events == ["start", "stop"]
    kd.inspect.NoopProfiler()(0)
    kd.inspect.NoopProfiler().close()


def test_none_is_the_profiler_that_records_nothing(tmp_path):
    trainer = make_trainer(tmp_path, profiler=None)
    assert isinstance(trainer.profiler, kd.inspect.NoopProfiler)


def test_short_run_leaves_a_trace(tmp_path):
    profiler = kd.inspect.Profiler(first_profile=2)
    make_trainer(tmp_path, profiler=profiler, num_train_steps=6).train()
    (trace,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert trace.stat().st_size > 1000


def test_profiler_that_fails_does_not_fail_the_run(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("no profiler here")

    monkeypatch.setattr(jax.profiler, "start_trace", refuse)
    profiler = kd.inspect.Profiler(first_profile=2)
    state, _ = make_trainer(tmp_path, profiler=profiler, num_train_steps=6).train()
    assert int(state.step) == 6
