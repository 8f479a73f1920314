"""Adaptive searches in stacks: values for one stack at a time, pruning at checkpoints."""

import pathlib
import signal

import pytest

from kauldron import kd, kxm
from kauldron.kxm import records
from kauldron.kxm.engines.study import open_study
from tests import compilation, processes
from tests.kxm.stacked import config

pytest.importorskip("optuna", reason="needs Optuna: pip install 'kauldron[optuna]'")

PROGRAM = """
import os, signal, sys
from kauldron.cli.commands import stack

ended = stack.States.ended

def end(self, unit, ending):
    ended(self, unit, ending)
    if ending.kind == "pruned":
        os.kill(os.getpid(), signal.SIGKILL)

if sys.argv.pop(1) == "killed":
    stack.States.ended = end
sys.exit(stack.main(["--max_units=4", *sys.argv[1:]]))
"""
# The fifth learns nothing, the last as much as the best of those before.
RATES = [0.04, 0.05, 0.06, 0.07, 1e-6, 0.07]


class StartsNothing(kxm.Stacked):
    """Leaves the work units to the test."""

    waits = False

    def submit(self, handle, units):
        pass


def train(how, units):
    folders = [str(unit.folder) for unit in units]
    quickly = compilation.quick_environment()
    return processes.python("-c", PROGRAM, how, *folders, environment=quickly).wait()


@pytest.mark.slow
def test_a_killed_search_that_prunes_is_resumed():
    search = kxm.Search(
        {"aux.lr": kxm.Range(1e-7, 1.0)},
        method="tpe",
        num_trials=len(RATES),
        metric="test/losses/total",
        prune="median",
        prefix="cfg.",
    )
    handle = kxm.Experiment(
        cfg_provider=kxm.ConfigProvider.from_module(
            config,
            overrides={"log_metrics_every": 1, "checkpointer.save_interval_steps": 8},
        ),
        jobs_provider=kxm.KauldronJobs(),
        sweep_info=search,
        executor=StartsNothing(max_units=4),
    ).launch()
    study = open_study(handle.xp_dir, search.to_json())
    for rate in RATES:
        study.enqueue_trial({"aux.lr": rate})

    code, output = train("killed", handle.work_units)
    assert code == -signal.SIGKILL, output
    *done, pruned, last = handle.work_units
    assert [unit.state for unit in done] == ["succeeded"] * 4
    assert [pruned.state, last.state] == ["pruned", "stopped"]
    assert [unit.wid for unit in handle.unfinished()] == [6]  # to be resumed
    before = study.trials
    assert before[4].datetime_start > max(t.datetime_complete for t in before[:4])
    assert before[5].state.name == "RUNNING"

    workdir = pathlib.Path(pruned.workdir)
    assert int(kd.from_workdir.get_state(workdir).step) == 8  # after the second value
    assert not (workdir / "train_complete.txt").exists()
    assert "pruned at step 8: not promising" in pruned.log_path().read_text()
    events = [e["event"] for e in records.read_events(handle.xp_dir) if e["wid"] == 5]
    assert events[-1] == "pruned"

    code, output = train("to the end", [last])
    assert code == 0, output
    assert last.state == "succeeded"
    trials = study.trials
    assert [t.state.name for t in trials] == [*["COMPLETE"] * 4, "PRUNED", "COMPLETE"]
    assert [t.user_attrs["wid"] for t in trials] == [1, 2, 3, 4, 5, 6]
    assert [u.sweep["cfg.aux.lr"] for u in handle.work_units] == RATES
    assert trials[5].value == last.scalars()["test/losses/total"][1]
    assert int(kd.from_workdir.get_state(last.workdir).step) == 12
