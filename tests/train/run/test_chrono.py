"""Timing of a loop, on a clock that the test turns."""

import json
import time

import jax
import pytest

from kauldron.train.compat import PerformanceTimer
from kauldron.train.run.chrono import Chrono, Pause


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def _loop(chrono, clock, *, num_steps, step_time=0.5, pause_time=0.0):
    for _ in range(num_steps):
        if pause_time:
            with chrono.pause(report_as=Pause.CHECKPOINT):
                clock.wait(pause_time)
        clock.wait(step_time)
        chrono.finish_step()


def test_rates_and_averages_of_a_window(clock):
    chrono = Chrono(name="train", batch_size=8)
    chrono.start_loop()
    _loop(chrono, clock, num_steps=4, step_time=0.5, pause_time=2.0)
    metrics = chrono.flush_metrics()
    assert metrics == pytest.approx(
        {
            "steps_per_sec": 2.0,
            "data_points_per_sec_global": 16.0,
            "data_points_per_sec_per_device": 16.0 / jax.device_count(),
            "train/avg_time_sec": 0.5,
            "checkpoint/avg_time_sec": 2.0,
            "total_training_time_hours": 10.0 / 3600,
            "first_step_sec": 0.5,
        }
    )


def test_second_flush_at_once_has_no_rates(clock):
    chrono = Chrono(name="train", batch_size=8)
    chrono.start_loop()
    _loop(chrono, clock, num_steps=1)
    chrono.flush_metrics()
    assert set(chrono.flush_metrics()) == {"total_training_time_hours"}


def test_window_without_time_has_no_rates(clock):
    chrono = Chrono(name="train")
    chrono.start_loop()
    chrono.finish_step()
    assert "steps_per_sec" not in chrono.flush_metrics()


def test_next_window_counts_only_its_own_steps(clock):
    chrono = Chrono(name="train")
    chrono.start_loop()
    _loop(chrono, clock, num_steps=3, step_time=10.0)
    chrono.flush_metrics()
    _loop(chrono, clock, num_steps=2, step_time=0.25)
    metrics = chrono.flush_metrics()
    assert metrics["steps_per_sec"] == pytest.approx(4.0)
    assert "first_step_sec" not in metrics


def test_first_step_is_reported_apart(clock):
    chrono = Chrono(name="train")
    chrono.start_loop()
    _loop(chrono, clock, num_steps=1, step_time=30.0)
    _loop(chrono, clock, num_steps=1, step_time=1.0)
    assert chrono.flush_metrics()["first_step_sec"] == 30.0


def test_several_steps_at_once(clock):
    chrono = Chrono(name="train")
    chrono.start_loop()
    clock.wait(2.0)
    chrono.finish_step(num_steps=8)
    assert chrono.flush_metrics()["steps_per_sec"] == pytest.approx(4.0)


def test_nested_pauses_count_once(clock):
    chrono = Chrono(name="train")
    chrono.start_loop()
    with chrono.pause(report_as="outer"):
        clock.wait(1.0)
        with chrono.pause(report_as="inner"):
            clock.wait(2.0)
    clock.wait(0.5)
    chrono.finish_step()
    metrics = chrono.flush_metrics()
    assert metrics["total_training_time_hours"] == pytest.approx(3.5 / 3600)
    assert metrics["train/avg_time_sec"] == pytest.approx(0.5)
    assert metrics["outer/avg_time_sec"] == pytest.approx(3.0)
    assert metrics["inner/avg_time_sec"] == pytest.approx(2.0)


def test_unnamed_pause_is_excluded_but_not_reported(clock):
    chrono = Chrono(name="train")
    chrono.start_loop()
    with chrono.pause():
        clock.wait(5.0)
    clock.wait(1.0)
    chrono.finish_step()
    metrics = chrono.flush_metrics()
    assert metrics["train/avg_time_sec"] == pytest.approx(1.0)
    assert metrics["total_training_time_hours"] == pytest.approx(6.0 / 3600)


def test_pause_in_which_nothing_happened_is_not_averaged(clock):
    chrono = Chrono(name="train")
    chrono.start_loop()
    for ran in (False, True, False):
        with chrono.pause(report_as=Pause.EVALS_ALONG_TRAIN) as pause:
            clock.wait(3.0 if ran else 0.001)
            if not ran:
                pause.report_as = None
        chrono.finish_step()
    assert chrono.flush_metrics()["evals_along_train/avg_time_sec"] == pytest.approx(
        3.0
    )


def test_pause_ends_when_its_block_raises(clock):
    chrono = Chrono(name="train")
    chrono.start_loop()
    with pytest.raises(RuntimeError), chrono.pause():
        clock.wait(5.0)
        raise RuntimeError
    clock.wait(1.0)
    chrono.finish_step()
    assert chrono.flush_metrics()["train/avg_time_sec"] == pytest.approx(1.0)


def test_pause_before_the_loop_counts_in_the_total_only(clock):
    chrono = Chrono(name="train")
    with chrono.pause(report_as="restore"):
        clock.wait(2.0)
    clock.wait(100.0)
    chrono.start_loop()
    _loop(chrono, clock, num_steps=1, step_time=1.0)
    metrics = chrono.flush_metrics()
    assert metrics["total_training_time_hours"] == pytest.approx(3.0 / 3600)
    assert metrics["train/avg_time_sec"] == pytest.approx(1.0)


def test_step_before_the_loop_is_refused():
    with pytest.raises(RuntimeError, match="start_loop"):
        Chrono(name="train").finish_step()


def test_restored_chrono_continues_the_total_time(clock):
    chrono = Chrono(name="train", batch_size=8, pause_names=list(Pause))
    chrono.start_loop()
    _loop(chrono, clock, num_steps=2, step_time=1.0, pause_time=1.0)
    stored = json.loads(json.dumps(chrono.to_json()))
    assert set(stored) == {
        "name",
        "batch_size",
        "pause_names",
        "chrono_since_last_flush",
        "_start_time",
        "_global_total_time",
    }

    clock.now = 5.0  # another process
    restored = Chrono(name="train", batch_size=32).with_json(stored)
    clock.wait(100.0)
    restored.start_loop()
    _loop(restored, clock, num_steps=2, step_time=1.0)
    metrics = restored.flush_metrics()
    assert metrics["total_training_time_hours"] == pytest.approx(6.0 / 3600)
    assert metrics["steps_per_sec"] == pytest.approx(1.0)
    assert metrics["data_points_per_sec_global"] == pytest.approx(32.0)
    assert metrics["checkpoint/avg_time_sec"] == pytest.approx(1.0)


def test_restore_ignores_unknown_and_fills_missing_entries(clock):
    restored = Chrono(name="train").with_json({"unknown": 1})
    assert restored == Chrono(name="train")


def test_chrono_is_saved_by_orbax_as_json(tmp_path, clock):
    import orbax.checkpoint as ocp

    chrono = Chrono(name="train", _global_total_time=7.0)
    with ocp.Checkpointer(chrono.__kd_ocp_handlers__()) as checkpointer:
        checkpointer.save(tmp_path / "timer", args=chrono.__kd_ocp_save_args__())
        value = checkpointer.restore(
            tmp_path / "timer", args=chrono.__kd_ocp_restore_args__()
        )
    assert json.loads((tmp_path / "timer" / "metadata").read_text())["name"] == "train"
    assert chrono.__kd_ocp_restore_post__(value) == chrono


# --------------------------------------------------------------------------------------
# The older timer
# --------------------------------------------------------------------------------------


def _timer(hours=0.0):
    return PerformanceTimer(
        initial_step_num=10,
        initial_training_time_hours=hours,
        per_device_batch_size=2,
        global_batch_size=4,
    )


def test_older_timer_reports_rates(clock):
    timer = _timer(hours=1.0)
    for _ in range(4):
        with timer.exclude_from_step_stats():
            clock.wait(10.0)
        clock.wait(0.5)
        timer.finish_step()
    assert timer.log_stats(step_num=14) == pytest.approx(
        {
            "steps_per_sec": 2.0,
            "data_points_per_sec_per_device": 4.0,
            "data_points_per_sec_global": 8.0,
            "total_training_time_hours": 1.0 + 42.0 / 3600,
        }
    )
    assert timer.step_num_when_last_logged == 14
    assert set(timer.log_stats(step_num=14)) == {"total_training_time_hours"}


def test_older_timer_excludes_from_the_total(clock):
    timer = _timer()
    with timer.exclude_from_total_time():
        clock.wait(3600.0)
    clock.wait(3600.0)
    assert timer.total_training_time_hours == pytest.approx(1.0)


def test_older_timer_continues_after_a_restore(clock):
    timer = _timer()
    clock.wait(3600.0)
    stored = json.loads(json.dumps(timer.to_json()))
    assert stored == {"training_time_hours": pytest.approx(1.0)}
    restored = _timer().with_json(stored)
    clock.wait(1800.0)
    assert restored.total_training_time_hours == pytest.approx(1.5)
    assert restored.per_device_batch_size == 2
    assert restored.global_batch_size == 4


def test_wait_for_data_is_a_fraction_of_the_time_of_steps(monkeypatch):
    now = 0.0
    monkeypatch.setattr("kauldron.train.run.chrono._now", lambda: now)
    chrono = Chrono(name="train")
    chrono.start_loop()
    now += 4.0
    chrono.finish_step()
    assert "data_wait_fraction" not in chrono.flush_metrics()  # nobody noted any
    for waited in (1.0, 0.0, 9.0):
        chrono.add_data_wait(waited)
        now += 4.0
        chrono.finish_step()
        expected = min(waited / 4.0, 1.0)
        assert chrono.flush_metrics()["data_wait_fraction"] == expected
        assert chrono.data_wait_fraction == expected
