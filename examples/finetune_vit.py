"""Start from a Vision Transformer that another library trained.

Download the weights of a ViT once, for example `model.safetensors` of
`timm/vit_tiny_patch16_224.augreg_in21k`; then

    kauldron train --cfg=examples/finetune_vit.py:path=model.safetensors \\
        --cfg.workdir=/tmp/finetuned

trains it to read handwritten digits. Files of timm, Hugging Face (safetensors and flax) and
big_vision are recognised by the names in them. The log says what was loaded, what starts
fresh, and what of the file was not used.
"""

import dataclasses

from kauldron import konfig

with konfig.imports():
    import functools

    import flax.linen as nn
    import optax
    from sklearn import datasets

    from kauldron import kd

NUM_TEST = 297


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigArgs:
    """Arguments after the colon.

    Attributes:
      path: The file of the weights.
      variant: Size of the model, and of its patches.
      size: Width and height to which the digits are enlarged.
      only_head: Whether the encoder stays as it was loaded.
    """

    path: str = "model.safetensors"
    variant: str = "Ti/16"
    size: int = 64
    only_head: bool = False


def get_config(args: ConfigArgs = ConfigArgs()):
    """The experiment."""
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 500
    cfg.log_metrics_every = 50
    cfg.aux = args

    cfg.train_ds = make_ds(
        kd.data.py.SliceDataset(NUM_TEST, None), args.size, shuffle=True
    )
    cfg.eval_ds = make_ds(kd.data.py.SliceDataset(NUM_TEST), args.size, shuffle=False)

    # As the original computes: its last norm, its activation, no layer before the head.
    cfg.model = kd.nn.Vit(
        encoder=kd.nn.VitEncoder.from_variant_str(
            args.variant,
            prepend_cls_token=True,
            encoder_norm=nn.LayerNorm(),
            activation_fn=functools.partial(nn.gelu, approximate=False),
        ),
        num_classes=10,
        mode="cls_token",
        has_pre_logits=False,
        image="batch.image",
    )
    # Positions are interpolated to the size of the pictures here.
    cfg.init_transform = kd.ckpts.PretrainedLoader(
        path=args.path, fresh=["classifier_head.**"]
    )
    cfg.optimizer = optax.adamw(
        learning_rate=optax.cosine_onecycle_schedule(
            transition_steps=cfg.ref.num_train_steps, peak_value=1e-4, pct_start=0.1
        )
    )
    if args.only_head:
        cfg.optimizer = kd.optim.partial_updates(
            optax.adam(1e-2), mask=kd.optim.select("classifier_head")
        )
    cfg.train_losses = {
        "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="preds.logits", labels="batch.label"
        ),
    }
    cfg.train_metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds.logits", labels="batch.label"),
    }
    cfg.evals = {
        "test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(100), num_batches=None),
    }
    return cfg


def make_ds(part, size, *, shuffle):
    """The digits of one part as pictures with three channels."""
    return kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "images", "label": "target"},
        shuffle=shuffle,
        num_epochs=None if shuffle else 1,
        batch_size=50 if shuffle else 99,
        transforms=[
            part,
            kd.contrib.data.Repeat(key="image", pattern="h w -> h w 3"),
            kd.data.Rearrange(key="label", pattern="-> 1"),
            kd.data.Cast(key="image", dtype="float32"),
            kd.data.Cast(key="label", dtype="int32"),
            kd.data.Resize(key="image", size=(size, size)),
            kd.data.ValueRange(key="image", in_vrange=(0, 16), vrange=(-1, 1)),
        ],
    )
