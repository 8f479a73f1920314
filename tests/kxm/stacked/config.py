"""A small experiment to stack: a classifier of random points, with dropout and a schedule."""

import numpy as np

from kauldron import konfig

with konfig.imports():
    import optax
    from flax import linen as nn

    from kauldron import kd
    from tests.kxm.stacked import config as data


def points(count=96):
    """Points and whether their first coordinate is positive."""
    x = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    return {"x": x, "y": (x[:, :1] > 0).astype(np.int32)}


def get_config():
    """The experiment."""
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 12
    cfg.log_metrics_every = 4
    cfg.log_summaries_every = None
    cfg.profiler = None
    cfg.aux = {"lr": 1e-2, "rate": 0.2, "width": 8, "weight": 1.0}
    cfg.train_ds = _make_ds(shuffle=True)
    cfg.eval_ds = _make_ds(shuffle=False)
    cfg.model = kd.nn.Sequential(
        inputs="batch.x",
        outputs="logits",
        layers=[
            nn.Dense(features=cfg.ref.aux.width),
            nn.relu,
            kd.nn.Dropout(rate=cfg.ref.aux.rate),
            nn.Dense(features=2),
        ],
    )
    cfg.train_losses = {
        "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="preds.logits", labels="batch.y", weight=cfg.ref.aux.weight
        ),
    }
    cfg.train_metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds.logits", labels="batch.y"),
    }
    cfg.schedules = {
        "lr": optax.cosine_decay_schedule(
            init_value=cfg.ref.aux.lr, decay_steps=cfg.ref.num_train_steps
        )
    }
    cfg.optimizer = optax.adam(learning_rate=cfg.ref.schedules["lr"])
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=4)
    cfg.evals = {
        "test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(6), num_batches=None)
    }
    return cfg


def _make_ds(*, shuffle):
    return kd.data.py.Arrays(
        data.points,
        shuffle=shuffle,
        num_epochs=None if shuffle else 1,
        batch_size=16,
    )
