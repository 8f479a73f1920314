"""ViT-B/16 on ImageNet, read and augmented by TensorFlow."""

from kauldron import konfig

with konfig.imports():
    import optax

    from kauldron import kd


def get_config():
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 90_000
    cfg.train_ds = _make_ds(training=True)
    cfg.model = kd.nn.Vit(
        image="batch.image",
        num_classes=1000,
        mode="cls_token",
        encoder=kd.nn.VitEncoder.from_variant_str(
            "ViT-B/16",
            block_type=kd.nn.ParallelAttentionBlock,
            prepend_cls_token=True,
        ),
    )
    cfg.train_losses = {
        "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="preds.logits", labels="batch.label"
        ),
    }
    cfg.train_metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds.logits", labels="batch.label"),
    }
    cfg.optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(learning_rate=1e-3)
    )
    cfg.evals = {
        "val": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(5000),
            num_batches=None,
            ds=_make_ds(training=False),
        ),
    }
    return cfg


def _make_ds(training):
    if training:
        pictures = [
            kd.data.tf.InceptionCrop(key="image", resize_size=(224, 224)),
            kd.data.tf.RandomFlipLeftRight(key="image"),
            kd.contrib.data.RandAugment(image_key="image", num_layers=2, magnitude=15),
        ]
    else:
        pictures = [
            kd.data.tf.ResizeSmall(key="image", smaller_size=256),
            kd.data.tf.CenterCrop(key="image", shape=(224, 224, 3)),
        ]
    return kd.data.tf.Tfds(
        name="imagenet2012",
        split="train[:99%]" if training else "train[99%:]",
        shuffle=training,
        cache=True,
        num_epochs=None if training else 1,
        batch_size=8,
        transforms=[
            kd.data.Elements(keep=["image", "label"]),
            *pictures,
            kd.data.ValueRange(key="image", vrange=(-1, 1)),
            kd.data.Rearrange(key="label", pattern="-> 1"),
        ],
    )
