"""A config with arguments."""

import dataclasses

from kauldron import konfig

with konfig.imports():
    import optax
    from flax import linen as nn

    from kauldron import kd


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigArgs:
    batch_size: int = 16
    width: int = 32
    mixed: bool = True


def get_config(args: ConfigArgs = ConfigArgs()):
    cfg = kd.train.Trainer()
    cfg.aux = args
    cfg.seed = 0
    cfg.num_train_steps = 100
    parts = {
        name: kd.data.py.Tfds(
            name="mnist",
            split=name,
            shuffle=True,
            transforms=[
                kd.data.Elements(keep=["image"]),
                kd.data.py.RandomCrop(key="image", shape=(24, 24, None)),
            ],
        )
        for name in ("train", "test")
    }
    if args.mixed:
        cfg.train_ds = kd.data.py.Mix(
            datasets=list(parts.values()),
            weights=[0.9, 0.1],
            seed=0,
            batch_size=args.batch_size,
            transforms=[
                kd.data.Resize(key="image", size=(16, 16)),
                kd.data.ValueRange(key="image", vrange=(0, 1)),
            ],
        )
    else:
        cfg.train_ds = parts["train"]
        cfg.train_ds.batch_size = args.batch_size
    cfg.model = kd.nn.FlatAutoencoder(
        inputs="batch.image",
        encoder=nn.Dense(features=cfg.ref.aux.width),
        decoder=nn.Dense(features=16 * 16),
    )
    cfg.train_losses = {
        "recon": kd.losses.L2(preds="preds.image", targets="batch.image")
    }
    cfg.optimizer = optax.adam(learning_rate=1e-3)
    return cfg


def sweep():
    for batch_size in (8, 16):
        yield {"__args__.batch_size": batch_size}
