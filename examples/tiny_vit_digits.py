"""A small Vision Transformer that reads handwritten digits.

    kauldron train --cfg=examples/tiny_vit_digits.py --cfg.workdir=/tmp/tiny_vit

Each digit becomes 16 patches. A quarter of a minute on two cores is enough for more
than 95 % of the digits that it has not seen.
"""

from kauldron import konfig

with konfig.imports():
    import optax
    from sklearn import datasets

    from kauldron import kd

SIZE = (16, 16)  # enlarged, so that they can be moved by parts of a pixel


def get_config():
    """The experiment."""
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 500
    cfg.log_metrics_every = 100
    cfg.log_summaries_every = None

    # Few digits: each is shown a little larger, smaller or moved every time.
    varied = [
        kd.contrib.data.PadImage(key="image", pad=1),
        kd.data.py.InceptionCrop(key="image", resize_size=SIZE, area_range=(0.8, 1.0)),
    ]
    cfg.train_ds = make_ds(0, varied, shuffle=True)
    cfg.eval_ds = make_ds(1, [], shuffle=False)

    cfg.model = kd.nn.Vit(
        encoder=kd.nn.VitEncoder.from_spec(
            num_heads=4, hidden_size=32, num_layers=2, patch_size=4, mlp_size=64
        ),
        num_classes=10,
        image="batch.image",
    )
    cfg.train_losses = {
        "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="preds.logits", labels="batch.label"
        ),
    }
    cfg.train_metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds.logits", labels="batch.label"),
    }
    cfg.schedules = {
        "learning_rate": optax.cosine_onecycle_schedule(
            transition_steps=cfg.ref.num_train_steps, peak_value=1e-2, pct_start=0.1
        ),
    }
    cfg.optimizer = optax.adamw(
        learning_rate=cfg.ref.schedules["learning_rate"],
        weight_decay=0.05,
        mask=kd.optim.select("**.kernel"),
    )
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=250)
    cfg.evals = {
        "test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(250), num_batches=None),
    }
    return cfg


def make_ds(first, augmentation, *, shuffle):
    """Every second digit, with its label: one half is trained on, the other held out."""
    return kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "images", "label": "target"},
        shuffle=shuffle,
        num_epochs=None if shuffle else 1,
        batch_size=100 if shuffle else 449,
        transforms=[
            kd.data.py.SliceDataset(first, None, 2),
            kd.data.Rearrange(key="image", pattern="h w -> h w 1"),
            kd.data.Rearrange(key="label", pattern="-> 1"),
            kd.data.Cast(key="image", dtype="float32"),
            kd.data.Cast(key="label", dtype="int32"),
            kd.data.Resize(key="image", size=SIZE),
            *augmentation,
            kd.data.ValueRange(key="image", in_vrange=(0, 16), vrange=(-1, 1)),
        ],
    )
