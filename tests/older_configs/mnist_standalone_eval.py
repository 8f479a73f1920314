"""The autoencoder, evaluated by another process."""

from kauldron import konfig
from tests.older_configs import mnist_autoencoder

with konfig.imports():
    from kauldron import kd


def get_config():
    cfg = mnist_autoencoder.get_config()
    run = kd.evals.StandaloneEveryCheckpoint(job_group="eval_group")
    cfg.evals = {
        "standalone_test": kd.evals.Evaluator(
            run=run,
            num_batches=3,
            ds=make_ds("test"),
            metrics={"ssim": kd.metrics.Ssim(pred="preds.image", target="batch.image")},
        ),
        "standalone_train": kd.evals.Evaluator(
            run=run, num_batches=3, ds=make_ds("train")
        ),
    }
    return cfg


def make_ds(split):
    """A split of MNIST, read by TensorFlow."""
    return kd.data.tf.Tfds(
        name="mnist",
        split=split,
        shuffle=False,
        num_epochs=1,
        batch_size=16,
        transforms=[
            kd.data.Elements(keep=["image"]),
            kd.data.ValueRange(key="image", vrange=(0, 1)),
        ],
    )
