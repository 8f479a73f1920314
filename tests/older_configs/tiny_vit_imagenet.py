"""A tiny Vision Transformer, with augmented images and two sweeps."""

from kauldron import konfig

with konfig.imports():
    import optax
    from jax.experimental import checkify

    from kauldron import kd

NUM_CLASSES = 1000


def get_config():
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 100_000
    cfg.train_ds = _make_ds(training=True)
    cfg.model = kd.nn.Vit(
        image="batch.image",
        num_classes=NUM_CLASSES,
        encoder=kd.nn.VitEncoder.from_variant_str("ViT-Ti/8"),
    )
    cfg.train_losses = {
        "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="preds.logits", labels="batch.label"
        ),
    }
    cfg.train_metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds.logits", labels="batch.label"),
        "attention": kd.metrics.SkipIfMissing(
            kd.metrics.Std(values="interms.encoder.layers_11.attention.attn_weights[0]")
        ),
        "grads": kd.metrics.TreeReduce(
            metric=kd.metrics.Norm(tensor="grads.encoder", axis=None)
        ),
    }
    cfg.schedules = {
        "learning_rate": optax.warmup_cosine_decay_schedule(
            init_value=0.0,
            peak_value=1e-3,
            warmup_steps=1,
            decay_steps=cfg.ref.num_train_steps,
        ),
    }
    cfg.optimizer = kd.optim.named_chain(
        clip=optax.clip_by_global_norm(max_norm=1.0),
        adam=optax.scale_by_adam(b1=0.9),
        decay=optax.add_decayed_weights(
            weight_decay=1e-4, mask=kd.optim.select("**.kernel")
        ),
        lr=optax.scale_by_learning_rate(cfg.ref.schedules["learning_rate"]),
    )
    cfg.checkify_error_categories = checkify.user_checks
    cfg.setup.note_template = "batch {cfg.train_ds.batch_size}"
    cfg.evals = {
        "val": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(1000),
            num_batches=None,
            ds=_make_ds(training=False),
        ),
    }
    return cfg


def _make_ds(training):
    if training:
        augment = [
            kd.data.Elements(keep=["image", "label"]),
            kd.data.Resize(key="image", size=(32, 32)),
            kd.contrib.data.RandAugment(image_key="image", num_layers=2, magnitude=15),
        ]
    else:
        augment = [
            kd.data.Elements(keep=["image", "label"]),
            kd.data.Resize(key="image", size=(32, 32)),
        ]
    return kd.data.py.Tfds(
        name="imagenet2012",
        split="train[:99%]" if training else "train[99%:]",
        shuffle=training,
        num_epochs=None if training else 1,
        batch_size=8,
        transforms=[
            *augment,
            kd.data.ValueRange(key="image", vrange=(-1, 1)),
            kd.data.Rearrange(key="label", pattern="-> 1"),
        ],
    )


def sweep():
    for learning_rate in (1e-3, 3e-4):
        yield {"schedules.learning_rate.peak_value": learning_rate}


def sweep_seed():
    for seed in range(2):
        yield {"seed": seed}
