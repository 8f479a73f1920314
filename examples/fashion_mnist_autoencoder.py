"""An autoencoder of Fashion-MNIST.

The data come from Debian's package `dataset-fashion-mnist` (`apt install
dataset-fashion-mnist`); another folder with the same four files can be named:

    kauldron train --cfg=examples/fashion_mnist_autoencoder.py:folder=/data/fashion \\
        --cfg.workdir=/tmp/fashion
"""

import dataclasses
import pathlib

from kauldron import konfig

with konfig.imports():
    import optax
    from flax import linen as nn
    from kauldron import kd


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigArgs:
    """Arguments after the colon.

    Attributes:
      folder: Where the files are.
      width: Size of the code.
    """

    folder: str = "/usr/share/dataset-fashion-mnist"
    width: int = 128


def get_config(args: ConfigArgs = ConfigArgs()):
    """The experiment."""
    cfg = kd.train.Trainer()
    cfg.aux = args
    cfg.num_train_steps = 5000
    cfg.train_ds = _make_ds(args, "train", training=True)
    cfg.eval_ds = _make_ds(args, "t10k", training=False)
    cfg.model = kd.nn.FlatAutoencoder(
        inputs="batch.image",
        encoder=nn.Dense(features=cfg.ref.aux.width),
        decoder=nn.Dense(features=28 * 28),
    )
    cfg.train_losses = {
        "recon": kd.losses.L2(preds="preds.image", targets="batch.image"),
    }
    cfg.train_metrics = {
        "param_norm": kd.metrics.TreeReduce(metric=kd.metrics.Norm(tensor="params")),
    }
    cfg.train_summaries = {
        "images": kd.summaries.ShowImages(images="batch.image", num_images=5),
        "reconstructions": kd.summaries.ShowImages(images="preds.image", num_images=5),
    }
    cfg.optimizer = optax.adam(learning_rate=1e-3)
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=1000)
    cfg.evals = {
        "test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(1000), num_batches=None),
    }
    return cfg


def _make_ds(args, part, *, training):
    path = pathlib.Path(args.folder) / f"{part}-images-idx3-ubyte.gz"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist. Install Debian's package dataset-fashion-mnist, or "
            "name the folder of the files: --cfg=...:folder=/path/to/files"
        )
    return kd.data.py.Idx(
        files={"image": str(path)},
        shuffle=training,
        num_epochs=None if training else 1,
        batch_size=256 if training else 1000,
        transforms=[
            kd.data.Rearrange(key="image", pattern="h w -> h w 1"),
            kd.data.ValueRange(key="image", vrange=(0, 1)),
        ],
    )
