"""A process of the toy experiment, for tests that disturb it.

    python -m tests.evals.worker train WORKDIR [SLOWLY]
    python -m tests.evals.worker eval WORKDIR [DIE_AT_BATCH [COORDINATOR INDEX]]

Training waits before each checkpoint until the evaluator has evaluated the one before,
if asked to go slowly. The evaluator kills itself at a batch, counted over everything;
with a coordinator, it is one of two processes.
"""

import os
import signal
import sys
import time

import jax

from kauldron import kd
from tests.evals.experiments import steps
from tests.train.toy import make_ds, make_trainer

NUM_STEPS = 20
SAVE_EVERY = 5
DEADLINE_SECS = 60


class Waiting(kd.ckpts.Checkpointer):
    """Saves when the checkpoint before was evaluated."""

    def save(self, state, *, step, **kwargs):
        self.wait_until_finished()  # until then the newest is not there
        newest = self.latest_step
        deadline = time.monotonic() + DEADLINE_SECS
        while newest is not None and newest not in steps(self.workdir, "e"):
            assert time.monotonic() < deadline, "The evaluator does not come."
            time.sleep(0.01)
        return super().save(state, step=step, **kwargs)


class Dying(kd.evals.Evaluator):
    """Kills its process before a batch."""

    die_at: int = -1
    batches: list = None

    def checked_step(self, index, state, batch):
        if len(self.batches) == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.batches.append(index)
        return super().checked_step(index, state, batch)


def make(workdir, *, slowly=False, die_at=-1):
    """The experiment."""
    checkpointer = Waiting if slowly else kd.ckpts.Checkpointer
    every = kd.evals.StandaloneEveryCheckpoint(seconds_to_sleep=0.02, skip_missed=False)
    return make_trainer(
        workdir,
        num_train_steps=NUM_STEPS,
        checkpointer=checkpointer(save_interval_steps=SAVE_EVERY, max_to_keep=1),
        eval_ds=make_ds(shuffle=False, num_epochs=1),
        evals={"e": Dying(run=every, die_at=die_at, batches=[])},
    )


def main(job, workdir, option=None, coordinator=None, index=None):
    if coordinator is not None:
        jax.distributed.initialize(coordinator, 2, int(index))
    if job == "train":
        make(workdir, slowly=option is not None).train()
    else:
        make(workdir, die_at=int(option or -1)).continuous_eval("e")


if __name__ == "__main__":
    main(*sys.argv[1:])
