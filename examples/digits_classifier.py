"""A small convolutional classifier of handwritten digits.

    kauldron train --cfg=examples/digits_classifier.py --cfg.workdir=/tmp/classifier

The model is written in the config itself, layer by layer; `kd.nn.Dropout` knows by
itself whether it trains.
"""

from kauldron import konfig

with konfig.imports():
    import optax
    from flax import linen as nn
    from sklearn import datasets

    from kauldron import kd

NUM_TEST = 297  # the first digits are held out, the other 1500 are trained on
NUM_CLASSES = 10


def get_config():
    """The experiment."""
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 300
    cfg.log_metrics_every = 50
    cfg.log_summaries_every = None

    cfg.train_ds = make_ds(kd.data.py.SliceDataset(NUM_TEST, None), shuffle=True)
    cfg.eval_ds = make_ds(kd.data.py.SliceDataset(NUM_TEST), shuffle=False)

    cfg.model = kd.nn.Sequential(
        inputs="batch.image",
        outputs="logits",
        layers=[
            nn.Conv(features=32, kernel_size=(3, 3)),
            nn.relu,
            nn.Conv(features=64, kernel_size=(3, 3)),
            nn.relu,
            kd.nn.Reduce("b (h 2) (w 2) c -> b h w c", "max"),
            kd.nn.Rearrange("b h w c -> b (h w c)"),
            nn.Dense(features=128),
            nn.relu,
            kd.nn.Dropout(rate=0.3),
            nn.Dense(features=NUM_CLASSES),
        ],
    )
    cfg.train_losses = {
        "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="preds.logits", labels="batch.label"
        ),
    }
    cfg.train_metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds.logits", labels="batch.label"),
    }
    cfg.optimizer = optax.adam(
        learning_rate=optax.cosine_decay_schedule(
            init_value=2e-3, decay_steps=cfg.ref.num_train_steps
        )
    )
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=200)
    cfg.evals = {
        "test": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(200),
            num_batches=None,
            summaries={
                "confusion": kd.contrib.summaries.ConfusionMatrix(
                    logits="preds.logits", labels="batch.label"
                ),
            },
        ),
    }
    return cfg


def make_ds(part, *, shuffle):
    """The digits of one part, with their labels."""
    return kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "images", "label": "target"},
        shuffle=shuffle,
        num_epochs=None if shuffle else 1,
        batch_size=64 if shuffle else 99,
        transforms=[
            part,
            kd.data.ValueRange(key="image", in_vrange=(0, 16), vrange=(0, 1)),
            kd.data.Cast(key="image", dtype="float32"),
            kd.data.Cast(key="label", dtype="int32"),
            kd.data.Rearrange(key="image", pattern="h w -> h w 1"),
            kd.data.Rearrange(key="label", pattern="-> 1"),
        ],
    )
