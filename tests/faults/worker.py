"""Trains the toy experiment, and kills itself at a chosen instant.

    python -m tests.faults.worker WORKDIR [INSTANT [COUNT]] [--in-memory]

The process sends itself SIGKILL at the COUNT-th time that it reaches the instant.
"""

import os
import signal
import sys
import threading

import optax

from kauldron import kd
from kauldron.ckpts import saving, step_folders
from kauldron.evals import batches
from kauldron.train.run import dispatch, lifecycle, loop, workdir_files
from tests.train.toy import Linear, make_arrays, make_ds, make_trainer

NUM_STEPS = 24


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_soon():
    """In the middle of what other threads do meanwhile."""
    threading.Timer(0.005, kill_self).start()


# From the name of an instant to what is replaced, and whether the kill comes before,
# shortly after the beginning of, or right after the call.
INSTANTS = {
    "start": (lifecycle, "start_or_resume", "before"),
    "started": (lifecycle, "start_or_resume", "after"),
    "metadata": (os, "fsync", "before"),
    "renamed": (os, "fsync", "after"),
    "step": (dispatch.Dispatcher, "run", "after"),
    "logging": (loop.DeferredLog, "write", "after"),
    "evaluation": (batches.GroupMerger, "add", "before"),
    "saving": (saving.SaveSession, "_start", "during"),
    "cleaning": (step_folders, "remove_leftovers", "after"),
    "end": (workdir_files, "write_train_complete", "before"),
    "ended": (workdir_files, "write_train_complete", "after"),
}


def arm(instant, count):
    """Kill this process when it reaches the instant for the `count`-th time."""
    owner, name, when = INSTANTS[instant]
    original = getattr(owner, name)
    calls = 0

    def wrapped(*args, **kwargs):
        nonlocal calls
        calls += 1
        is_it = calls == count
        if is_it and when == "before":
            kill_self()
        if is_it and when == "during":
            kill_soon()
        result = original(*args, **kwargs)
        if is_it and when == "after":
            kill_self()
        return result

    setattr(owner, name, wrapped)


def make(workdir, *, in_memory=False):
    """The experiment: dropout, shuffled data, evaluations, frequent checkpoints."""
    changes = {}
    if in_memory:
        changes["train_ds"] = kd.data.InMemoryPipeline(
            loader=make_arrays, shuffle=True, batch_size=16
        )
    return make_trainer(
        workdir,
        **changes,
        model=Linear(x="batch.x", rate=0.3),
        num_train_steps=NUM_STEPS,
        log_metrics_every=3,
        optimizer=optax.adam(1e-2),
        eval_ds=make_ds(shuffle=False, num_epochs=1),
        evals={
            "eval": kd.evals.Evaluator(run=kd.evals.EveryNSteps(8)),
            "final": kd.evals.Evaluator(run=kd.evals.Final()),
        },
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=5),
    )


def main(argv):
    in_memory = "--in-memory" in argv
    workdir, *fault = [word for word in argv if word != "--in-memory"]
    if fault:
        arm(fault[0], int(fault[1]) if len(fault) > 1 else 1)
    make(workdir, in_memory=in_memory).train()


if __name__ == "__main__":
    main(sys.argv[1:])
