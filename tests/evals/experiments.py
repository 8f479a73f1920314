"""The toy experiment as a config, and a look at what was logged."""

import functools

from kauldron import konfig, writers
from tests.train.toy import step_fields

with konfig.imports():
    import optax

    from kauldron import kd
    from tests.train import toy


def make_cfg(workdir, **changes):
    """A config that trains in a moment; `changes` are its fields."""
    cfg = kd.train.Trainer(
        seed=0,
        workdir=str(workdir),
        train_ds=toy.make_ds(),
        eval_ds=eval_data(),
        model=toy.Linear(x="batch.x"),
        num_train_steps=10,
        log_metrics_every=5,
        log_summaries_every=None,
        train_losses={"l2": kd.losses.L2(preds="preds.y", targets="batch.y")},
        train_metrics={"norm": kd.metrics.Norm(tensor="params.dense.kernel")},
        optimizer=optax.adam(learning_rate=1e-2),
        profiler=None,
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=4),
    )
    for name, value in changes.items():
        cfg[name] = value
    return cfg


def resolve(cfg):
    """The trainer of such a config, with the usual model and optimizer.

    It shares its step, and so its programs, with the others.
    """
    return konfig.resolve(cfg).replace(**_shared_step())


@functools.cache
def _shared_step():
    fields = step_fields(konfig.resolve(make_cfg("")))
    del fields["raw_cfg"]
    return fields


def eval_data():
    """All records once, in order: four batches."""
    return toy.make_ds(shuffle=False, num_epochs=1)


def standalone(*, every=True, metrics=None, **kwargs):
    """Config of an evaluator that runs in a process of its own."""
    if every:
        kwargs = {"seconds_to_sleep": 0.02, **kwargs}
        run = kd.evals.StandaloneEveryCheckpoint(**kwargs)
    else:
        run = kd.evals.StandaloneLastCheckpoint(**kwargs)
    cfg = kd.evals.Evaluator(run=run)
    if metrics is not None:
        cfg.metrics = metrics
    return cfg


def points(workdir, collection, key="losses/l2"):
    """Logged values as (step, value), in the order of the file."""
    lines = writers.read_scalars(workdir / collection)
    return [
        (line["step"], line["values"][key]) for line in lines if key in line["values"]
    ]


def steps(workdir, collection, key="losses/l2"):
    """Steps at which a value was logged, in the order of the file."""
    return [step for step, _ in points(workdir, collection, key)]
