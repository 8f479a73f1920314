"""A small real experiment: fit y = x W with a dense layer."""

import dataclasses
import functools

import flax.linen as nn
import numpy as np
import optax

from kauldron import kd, kontext

NUM_RECORDS = 64


def make_arrays(size=2):
    """Inputs and targets of a noiseless linear problem with that many outputs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_RECORDS, 4)).astype(np.float32)
    weights = np.arange(4 * size, dtype=np.float32).reshape(4, size) / (4 * size)
    return {"x": x, "y": x @ weights}


class Linear(nn.Module):
    """One dense layer with dropout, so that it has a training mode."""

    x: kontext.Key = kontext.REQUIRED
    rate: float = 0.0
    size: int = 2

    @nn.compact
    def __call__(self, x):
        x = kd.nn.Dropout(self.rate)(x)
        return {"y": nn.Dense(self.size, name="dense")(x)}


def make_ds(size=2, **changes):
    """The data as a pipeline that shuffles and repeats."""
    kwargs = {"shuffle": True, "num_epochs": None, "batch_size": 16}
    return kd.data.py.Arrays(make_arrays(size), **(kwargs | changes))


def make_byte_ds(size=2, **changes):
    """Inputs that are bytes, which a transform of the pipeline turns into floats."""
    arrays = make_arrays(size)
    arrays["x"] = (64 * (arrays["x"] + 2)).clip(0, 255).astype(np.uint8)
    kwargs = {"shuffle": True, "num_epochs": None, "batch_size": 16}
    kwargs |= {"transforms": [kd.data.ValueRange(key="x", vrange=(-1, 1))]}
    return kd.data.py.Arrays(arrays, **(kwargs | changes))


def make_trainer(workdir, *, shares_step=True, **changes):
    """A trainer that runs in a moment; `changes` are its fields.

    Where it can, it shares its step, and so its programs, with others.
    """
    kwargs = {
        "workdir": str(workdir),
        "train_ds": make_ds(),
        "num_train_steps": 10,
        "log_metrics_every": 5,
        "log_summaries_every": None,
        "profiler": None,
        "checkpointer": kd.ckpts.Checkpointer(save_interval_steps=4),
    }
    model = changes.pop("model", Linear(x="batch.x"))
    is_usual = type(model) is Linear and changes.keys() <= _AROUND_THE_STEP
    if shares_step and is_usual:
        step = _shared_step(model)
    else:
        step = _step(model)
    return kd.train.Trainer(**(kwargs | step | changes))


# With other values of these fields, a step computes the same.
_AROUND_THE_STEP = {
    *("train_ds", "eval_ds", "num_train_steps", "stop_after_steps", "checkpointer"),
    *("log_metrics_every", "log_summaries_every", "evals", "hooks", "writer"),
    *("setup", "profiler", "on_nonfinite", "steps_per_dispatch"),
}


def _step(model):
    return {
        "seed": 0,
        "model": model,
        "train_losses": {"l2": kd.losses.L2(preds="preds.y", targets="batch.y")},
        "train_metrics": {"norm": kd.metrics.Norm(tensor="params.dense.kernel")},
        "optimizer": optax.adam(1e-2),
    }


@functools.cache
def _shared_step(model):
    """Trainers that share their step trace and compile it once."""
    return step_fields(kd.train.Trainer(**_step(model)))


def step_fields(trainer):
    """Fields of a trainer with which others share its step."""
    names = {field.name for field in dataclasses.fields(trainer)}
    kept = names - {"workdir", *_AROUND_THE_STEP}
    return {name: getattr(trainer, name) for name in kept}


# A config file of such an experiment, for the command.
CONFIG = """
from kauldron import konfig

with konfig.imports():
    import optax

    from kauldron import kd
    from tests.train import toy


def get_config(size=2):
    size = int(size)
    cfg = kd.train.Trainer()
    cfg.train_ds = kd.data.py.Arrays(toy.make_arrays(size), shuffle=True, batch_size=16)
    cfg.model = toy.Linear(x="batch.x", size=size)
    cfg.train_losses = {"l2": kd.losses.L2(preds="preds.y", targets="batch.y")}
    cfg.optimizer = optax.adam(1e-2)
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=4)
    cfg.num_train_steps = 4
    cfg.profiler = None
    return cfg
"""
