"""One of several processes that train together.

python -m tests.train.distributed.process_worker PORT INDEX COUNT WORKDIR [key=value ...]
"""

import functools
import os
import sys
import time

from kauldron.cli import job


def make(workdir, **changes):
    """The experiment: shuffled data; dropout and two kinds of evaluations if wanted."""
    from kauldron import kd
    from tests.train.toy import Linear, make_byte_ds, make_ds, make_trainer

    if "device_transforms" in changes:
        wanted = bool(changes.pop("device_transforms"))
        make_ds = functools.partial(make_byte_ds, device_transforms=wanted)
        changes["train_ds"] = make_ds()
    if changes.pop("pauses", False):
        changes["train_ds"] = make_ds().map(_pause)
    rate = 0.3 if changes.pop("drops", True) else 0.0
    evals = {}
    if changes.pop("evaluates", True):
        along, final = kd.evals.EveryNSteps(6), kd.evals.Final(free_memory=False)
        evals["along"] = kd.evals.Evaluator(run=along)
        evals["final"] = kd.evals.Evaluator(run=final)
    kwargs = {
        "model": Linear(x="batch.x", rate=rate),
        "eval_ds": make_ds(num_epochs=1, shuffle=False),
        "evals": evals,
        "checkpointer": kd.ckpts.Checkpointer(save_interval_steps=10),
    }
    return make_trainer(workdir, **(kwargs | changes))


def _pause(batch):
    time.sleep(0.02)
    return batch


def main(port, index, count, workdir, *options):
    os.environ["JAX_COORDINATOR_ADDRESS"] = f"localhost:{port}"
    os.environ["KXM_NUM_PROCESSES"] = count
    os.environ["KXM_PROCESS_ID"] = index
    changes = {key: int(value) for key, value in (o.split("=") for o in options)}
    job._HEARTBEAT_SECONDS = changes.pop("heartbeat", 10)  # tests shall not wait long
    job.start_distributed()
    with job.ending_with_the_others():
        state, _ = make(workdir, **changes).train()
    kernel = state.params["dense"]["kernel"].addressable_data(0)
    print("done", int(state.step.addressable_data(0)), float(abs(kernel).sum()))


if __name__ == "__main__":
    main(*sys.argv[1:])
