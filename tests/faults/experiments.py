"""The experiments that are disturbed, and the instants at which they can be."""

import contextlib
import dataclasses
import os
import signal
import threading
import time
import types

import flax.linen as nn
import jax
import numpy as np

from kauldron import kd, konfig
from kauldron.ckpts import save_session, step_folders
from kauldron.cli import job
from kauldron.evals import evaluator_base, state_merging
from kauldron.train.run import dispatch, lifecycle, loop, workdir_files
from tests.train.toy import Linear

with konfig.imports():
    import optax as optax_cfg

    from kauldron import kd as kd_cfg
    from tests.faults import experiments, records
    from tests.train import toy

NUM_STEPS = 24
SAVE_EVERY = 5

#
# Configurations: each has a reference of its own
#


class WeightNorm(kd.evals.EvaluatorBase):
    """An evaluator as users write them: it writes its values itself."""

    def evaluate(self, state, step):
        squares = [np.sum(np.square(x)) for x in jax.tree.leaves(state.params)]
        value = float(np.sqrt(np.sum(squares)))
        self.writer.write_scalars(step, {"metrics/weight_norm": value})
        return kd.train.AuxiliariesOutput(metric_values={"weight_norm": value})


class Large(Linear):
    """A model whose checkpoints have a file of over a mebibyte."""

    @nn.compact
    def __call__(self, x):
        self.param("ballast", nn.initializers.normal(), (400_000,))
        return super().__call__(x)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """A way to run the experiment.

    Attributes:
      train_ds: Function that gives the config of the training data.
      model: Class of the model, in this module.
      checkpointer: Options of the checkpointer.
      fields: Other fields of the trainer.
      environment: Variables of the process.
      has_custom_eval: Whether an evaluator of the user's own runs during training, and
        an ordinary one at the end; else it is the other way round.
      eval_every: Steps between evaluations.
      num_processes: How many processes train together.
      is_drawn: Whether faults by chance may disturb it.
    """

    train_ds: str = "arrays"
    model: str = "Linear"
    checkpointer: dict = dataclasses.field(default_factory=dict)
    fields: dict = dataclasses.field(default_factory=dict)
    environment: dict = dataclasses.field(default_factory=dict)
    has_custom_eval: bool = False
    eval_every: int = 8
    num_processes: int = 1
    is_drawn: bool = True


_EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
_KEEPS_THE_BEST = {
    "best_metric_path": "eval.losses.l2",
    "best_mode": "max",  # the first ones, which must not get lost
    "max_to_keep": 2,
}

SETUPS = {
    "plain": Setup(),
    "data in memory": Setup(train_ds="in_memory"),
    "groups of steps": Setup(fields={"steps_per_dispatch": 2}),
    "eight devices": Setup(environment=_EIGHT),
    "large file": Setup(model="Large"),
    "keeps the best": Setup(
        checkpointer=_KEEPS_THE_BEST,
        eval_every=SAVE_EVERY,
    ),
    "own evaluator": Setup(has_custom_eval=True),
    "records": Setup(train_ds="records"),
    "two workers": Setup(train_ds="records_of_workers", is_drawn=False),
    "two processes": Setup(num_processes=2, is_drawn=False),
    "much at once": Setup(
        train_ds="in_memory",
        model="Large",
        checkpointer=_KEEPS_THE_BEST,
        has_custom_eval=True,
        eval_every=SAVE_EVERY,
        is_drawn=False,
    ),
    "two workers, groups of steps": Setup(
        train_ds="records_of_workers",
        fields={"steps_per_dispatch": 2},
        is_drawn=False,
    ),
    "records, eight devices": Setup(
        train_ds="records", environment=_EIGHT, is_drawn=False
    ),
    "records, two processes": Setup(
        train_ds="records", num_processes=2, is_drawn=False
    ),
}

# Setups that differ in how they compute alone: their values agree.
SAME_VALUES = [
    ("plain", "eight devices"),
    ("eight devices", "plain"),
    ("plain", "groups of steps"),
    ("groups of steps", "plain"),
    ("groups of steps", "eight devices"),
    ("records", "two workers"),
    ("two workers", "records"),
    ("plain", "two processes"),
    ("two processes", "plain"),
    ("two processes", "groups of steps"),
]


def _train_ds(kind):
    options = {"shuffle": True, "batch_size": 16}
    if kind == "in_memory":
        return kd_cfg.data.InMemoryPipeline(loader=toy.make_arrays, **options)
    options["num_epochs"] = None
    if kind == "arrays":
        return kd_cfg.data.py.Arrays(toy.make_arrays, **options)
    workers = 2 if kind == "records_of_workers" else 0
    source = records.Records(toy.make_arrays())
    return kd_cfg.data.py.DataSource(source, num_workers=workers, **options)


def make_config(workdir, setup="plain"):
    """The config: dropout, shuffled data, evaluations, frequent checkpoints."""
    setup = SETUPS[setup]
    cfg = kd_cfg.train.Trainer()
    cfg.workdir = str(workdir)
    cfg.seed = 0
    cfg.train_ds = _train_ds(setup.train_ds)
    cfg.eval_ds = kd_cfg.data.py.Arrays(
        toy.make_arrays, shuffle=False, num_epochs=1, batch_size=16
    )
    cfg.model = getattr(experiments, setup.model)(x="batch.x", rate=0.3)
    cfg.num_train_steps = NUM_STEPS
    cfg.log_metrics_every = 3
    cfg.log_summaries_every = None
    cfg.train_losses = {"l2": kd_cfg.losses.L2(preds="preds.y", targets="batch.y")}
    cfg.train_metrics = {
        "norm": kd_cfg.metrics.Norm(tensor="params.dense.kernel"),
        "batch": kd_cfg.metrics.Norm(tensor="batch.x"),  # tells batches apart
    }
    cfg.optimizer = optax_cfg.adam(1e-2)
    cfg.profiler = None
    cfg.evals = {
        "eval": kd_cfg.evals.Evaluator(run=kd_cfg.evals.EveryNSteps(setup.eval_every)),
        "final": experiments.WeightNorm(run=kd_cfg.evals.Final()),  # compiles nothing
    }
    if setup.has_custom_eval:
        cfg.evals["final"] = kd_cfg.evals.Evaluator(run=kd_cfg.evals.Final())
        cfg.evals["own"] = experiments.WeightNorm(run=kd_cfg.evals.EveryNSteps(4))
    cfg.checkpointer = kd_cfg.ckpts.Checkpointer(
        save_interval_steps=SAVE_EVERY, **setup.checkpointer
    )
    for name, value in setup.fields.items():
        cfg[name] = value
    return cfg


def collections(setup):
    """Names under which the experiment logs."""
    return (
        "train",
        "eval",
        "final",
        *(["own"] if SETUPS[setup].has_custom_eval else []),
    )


def train(workdir, setup="plain", instant=None, changes=()):
    """Train in this process, and have it disturbed at an instant."""
    if SETUPS[setup].num_processes > 1:
        job.start_distributed()
    cfg = make_config(workdir, setup)
    for path, value in changes:
        konfig.set_by_path(cfg, path, value)
    trainer = konfig.resolve(cfg)
    if instant is not None and instant[0] == "full disk":
        when("before saving", instant[1], lambda: fill_disk(workdir))
        # Nobody makes room between two attempts to save: they need not wait.
        clock = {**vars(time), "sleep": lambda seconds: None}
        save_session.time = types.SimpleNamespace(**clock)
    elif instant is not None:
        arm(*instant)
    trainer.train()


#
# Instants
#


# What is replaced, and whether the signal comes before, during, or after the call.
INSTANTS = {
    "start": (lifecycle, "start_or_resume", "before"),
    "started": (lifecycle, "start_or_resume", "after"),
    "metadata": (os, "fsync", "before"),
    "renamed": (os, "fsync", "after"),
    "step": (dispatch.Dispatcher, "run", "after"),
    "in a step": (dispatch.Dispatcher, "run", "during"),
    "logging": (loop.DeferredLog, "write", "after"),
    "evaluation": (state_merging.BatchProgram, "run", "before"),
    "evaluated": (evaluator_base.EvaluatorBase, "maybe_eval", "after"),
    "saving": (save_session.SaveSession, "_start", "during"),
    "before saving": (save_session.SaveSession, "_start", "before"),
    "saved": (save_session.SaveSession, "_after_commit", "before"),
    "noting": (step_folders, "write_sums", "before"),
    "removing": (step_folders, "_rename", "after"),
    "cleaning": (step_folders, "remove_leftovers", "after"),
    "end": (workdir_files, "write_train_complete", "before"),
    "ended": (workdir_files, "write_train_complete", "after"),
}


SENT = "The signal is sent."


def arm(instant, count, number):
    """Send this process a signal when it reaches the instant for the `count`-th time."""

    def send():
        print(SENT, flush=True)
        os.kill(os.getpid(), number)
        if number == signal.SIGKILL:
            threading.Event().wait()  # until it has arrived

    when(instant, count, send)


def when(instant, count, do):
    """Do something at the `count`-th time that this process reaches the instant."""
    owner, name, moment = INSTANTS[instant]
    original = getattr(owner, name)
    calls = 0

    def wrapped(*args, **kwargs):
        nonlocal calls
        calls += 1
        is_it = calls == count
        if is_it and moment == "before":
            do()
        if is_it and moment == "during":
            threading.Timer(0.005, do).start()
        result = original(*args, **kwargs)
        if is_it and moment == "after":
            do()
        return result

    setattr(owner, name, wrapped)


BALLAST = "ballast"


def fill_disk(workdir):
    """Write until nothing more fits."""
    with open(f"{workdir}/{BALLAST}", "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
