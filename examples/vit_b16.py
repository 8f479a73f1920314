"""ViT-B/16 on ImageNet-like pictures, in bf16.

    kauldron train --cfg=examples/vit_b16.py:folder=/data/imagenet/train --cfg.workdir=...

The folder has a folder of pictures for each class. Without one, the pictures are stripes, to
see how fast it trains. On a GPU that does not have the memory for 128 pictures at once:

    ... --cfg.num_microbatches=4                # compute the batch in four parts
    ... --cfg=examples/vit_b16.py:remat=True    # or compute blocks again when needed
"""

import dataclasses

from kauldron import konfig

with konfig.imports():
    import flax.linen as nn
    import numpy as np
    import optax

    from kauldron import kd


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigArgs:
    """Arguments after the colon.

    Attributes:
      variant: Size of the model, and of its patches.
      size: Width and height of the pictures.
      batch_size: Pictures in a batch.
      num_classes: How many classes there are.
      folder: Where the pictures are.
      scan_layers: Whether to compile one block for all: starts sooner, trains slower.
      remat: Whether to compute blocks again in the backward pass, to save memory.
    """

    variant: str = "B/16"
    size: int = 224
    batch_size: int = 128
    num_classes: int = 1000
    folder: str | None = None
    scan_layers: bool = False
    remat: bool = False


def get_config(args: ConfigArgs = ConfigArgs()):
    """The experiment."""
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 100_000
    cfg.log_metrics_every = 100
    cfg.aux = args

    cfg.train_ds = make_ds(args)
    cfg.model = kd.nn.MixedPrecision(  # bf16; parameters, losses and Adam in fp32
        model=kd.nn.Vit(
            encoder=kd.nn.VitEncoder.from_variant_str(
                args.variant,
                prepend_cls_token=True,
                encoder_norm=nn.LayerNorm(),
                scan_layers=args.scan_layers,
                remat=args.remat,
            ),
            num_classes=args.num_classes,
            mode="cls_token",
            has_pre_logits=False,
            image="batch.image",
        )
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
        optax.clip_by_global_norm(1.0),
        optax.adamw(
            learning_rate=optax.cosine_onecycle_schedule(
                transition_steps=cfg.ref.num_train_steps,
                peak_value=3e-4,
                pct_start=0.02,
            ),
            weight_decay=0.05,
            mask=kd.optim.select("**.kernel"),
        ),
    )
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=2000)
    return cfg


def make_ds(args):
    """Pictures of a folder, or stripes."""
    if args.folder is None:
        shape = (4 * args.batch_size, args.size, args.size, 3)
        return kd.data.py.Arrays(
            {
                "image": np.resize(np.arange(251, dtype="uint8"), shape),
                "label": np.resize(
                    np.arange(args.num_classes, dtype="int32"), (shape[0], 1)
                ),
            },
            shuffle=True,
            batch_size=args.batch_size,
            transforms=[kd.data.ValueRange(key="image", vrange=(-1, 1))],
        )
    return kd.data.py.ImageFolder(
        args.folder,
        shuffle=True,
        batch_size=args.batch_size,
        num_workers="auto",
        transforms=[
            kd.data.Elements(keep=["image", "label"]),
            kd.data.py.InceptionCrop(
                key="image", resize_size=(args.size, args.size), area_range=(0.2, 1.0)
            ),
            kd.data.py.RandomFlipLeftRight(key="image"),
            kd.data.ValueRange(key="image", vrange=(-1, 1)),
            kd.data.Cast(key="label", dtype="int32"),
            kd.data.Rearrange(key="label", pattern="-> 1"),
        ],
    )
