"""What a custom evaluator wrote is on disk before a checkpoint counts it as done.

    python -m tests.train.run.interrupted.test_custom_evaluator_killed WORKDIR KILLED_AT

trains; at the evaluation of the step KILLED_AT the process kills itself once the
checkpoint before is complete.
"""

import os
import signal
import sys
import time

import pytest

from kauldron import kd, writers
from kauldron.ckpts import step_folders
from kauldron.evals import run_strategies
from kauldron.train.run import workdir_files
from tests import processes
from tests.train.toy import make_trainer

pytestmark = pytest.mark.usefixtures("fast_python")

DEADLINE_SECONDS = 60


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


class Custom(kd.evals.EvaluatorBase):
    """Writes as the documentation shows, without a flush."""

    killed_at: int = -1

    def evaluate(self, state, step):
        self.writer.write_scalars(step, {"metrics/twice": 2.0 * step})
        if step == self.killed_at:
            folder = self.base_cfg.workdir / "checkpoints"
            deadline = time.monotonic() + DEADLINE_SECONDS
            while not step_folders.is_complete(folder, step - 1):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            _kill()


def _make(workdir, killed_at=-1):
    every, final = (
        run_strategies.EveryNSteps(1),
        run_strategies.Final(free_memory=False),
    )
    return make_trainer(
        workdir,
        num_train_steps=6,
        log_metrics_every=1,  # all steps are one program
        evals={
            "custom": Custom(run=every, killed_at=killed_at),
            "last": Custom(run=final),
        },
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=3),
    )


def _run(workdir, killed_at):
    return processes.python("-m", __name__, workdir, killed_at).wait()


def _steps(workdir, name):
    return [line["step"] for line in writers.read_scalars(workdir / name)]


@pytest.mark.slow
def test_values_of_a_custom_evaluator_survive_a_kill(tmp_path):
    code, output = _run(tmp_path, 4)
    assert code == -signal.SIGKILL, output
    _make(tmp_path).train()
    assert _steps(tmp_path, "custom") == list(range(7))


@pytest.mark.slow
def test_values_of_a_final_custom_evaluator_are_there_when_the_run_is_complete(
    tmp_path,
):
    code, output = _run(tmp_path, "complete")
    assert code == -signal.SIGKILL, output
    assert (tmp_path / "train_complete.txt").exists()
    _make(tmp_path).train()
    assert _steps(tmp_path, "last") == [6]
    assert _steps(tmp_path, "custom") == list(range(7))


def main(workdir, killed_at):
    if killed_at == "complete":
        write = workdir_files.write_train_complete
        workdir_files.write_train_complete = lambda *args, **kwargs: (
            write(*args, **kwargs),
            _kill(),
        )
        killed_at = -1
    _make(workdir, int(killed_at)).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
