"""A tiny Vision Transformer on ImageNet."""

from kauldron import konfig

with konfig.imports():
    import optax

    from kauldron import kd


def get_config():
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 100_000
    cfg.train_ds = _make_ds(training=True)
    cfg.model = kd.nn.Vit(
        image="batch.image",
        num_classes=1000,
        encoder=kd.nn.VitEncoder.from_variant_str("ViT-Ti/8"),
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
        "learning_rate": optax.warmup_cosine_decay_schedule(
            init_value=0.0,
            peak_value=1e-3,
            warmup_steps=1,
            decay_steps=cfg.ref.num_train_steps,
        ),
    }
    cfg.optimizer = optax.adam(learning_rate=cfg.ref.schedules["learning_rate"])
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=1000)
    cfg.evals = {
        "val": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(1000),
            num_batches=None,
            ds=_make_ds(training=False),
        ),
    }
    return cfg


def _make_ds(training):
    return kd.data.py.Tfds(
        name="imagenet2012",
        split="train[:99%]" if training else "train[99%:]",
        shuffle=training,
        num_epochs=None if training else 1,
        batch_size=8,
        transforms=[
            kd.data.Elements(keep=["image", "label"]),
            kd.data.Resize(key="image", size=(32, 32)),
            kd.data.ValueRange(key="image", vrange=(-1, 1)),
            kd.data.Rearrange(key="label", pattern="-> 1"),
        ],
    )


def sweep():
    for learning_rate in (1e-3, 3e-4):
        yield {"schedules.learning_rate.peak_value": learning_rate}
