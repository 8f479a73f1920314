"""A config with arguments."""

import dataclasses

from kauldron import konfig

with konfig.imports():
    import optax

    from kauldron import kd


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigArgs:
    batch_size: int = 16
    variant: str = "Ti/8"
    mixed: bool = True


def get_config(args: ConfigArgs = ConfigArgs()):
    cfg = kd.train.Trainer()
    cfg.aux = args
    cfg.seed = 0
    cfg.num_train_steps = 100
    cfg.train_ds = _make_ds(args)
    cfg.model = kd.nn.VitAutoEncoder(
        image="batch.image", encoder=kd.nn.VitEncoder.from_variant_str(args.variant)
    )
    cfg.train_losses = {
        "recon": kd.losses.L2(preds="preds.image", targets="batch.image")
    }
    cfg.optimizer = optax.adam(learning_rate=1e-3)
    return cfg


def _make_ds(args):
    transforms = [
        kd.data.Elements(keep=["image"]),
        kd.data.ValueRange(key="image", vrange=(0, 1)),
        kd.data.Resize(key="image", size=(40, 40)),
        kd.data.py.RandomCrop(key="image", shape=(32, 32, None)),
    ]
    names = ["imagenet2012", "cifar10"] if args.mixed else ["imagenet2012"]
    parts = [kd.data.py.Tfds(name=name, split="train", shuffle=True) for name in names]
    if args.mixed:
        return kd.data.py.Mix(
            datasets=parts,
            weights=[0.9, 0.1],
            seed=0,
            batch_size=args.batch_size,
            transforms=transforms,
        )
    [ds] = parts
    ds.batch_size = args.batch_size
    ds.transforms = transforms
    return ds


def sweep():
    for batch_size in (8, 16):
        yield {"__args__.batch_size": batch_size}


def sweep_mixed():
    for mixed in (True, False):
        yield {"__args__.mixed": mixed}
