"""An autoencoder of MNIST."""

from kauldron import konfig

with konfig.imports():
    import optax
    from flax import linen as nn

    from kauldron import kd


def get_config():
    cfg = kd.train.Trainer()
    cfg.seed = 42

    cfg.train_ds = make_ds(training=True)

    cfg.model = kd.nn.FlatAutoencoder(
        inputs="batch.image",
        encoder=nn.Dense(features=128),
        decoder=nn.Dense(features=28 * 28),
    )

    cfg.num_train_steps = 1000

    cfg.train_losses = {
        "recon": kd.losses.L2(preds="preds.image", targets="batch.image"),
    }
    cfg.train_metrics = {
        "latent_norm": kd.metrics.Norm(
            tensor="interms.encoder.__call__[0]", axis=-1, aggregation_type="average"
        ),
    }
    cfg.train_summaries = {
        "gt": kd.summaries.ShowImages(images="batch.image", num_images=5),
        "recon": kd.summaries.ShowImages(images="preds.image", num_images=5),
    }

    cfg.writer = kd.train.metric_writer.KDMetricWriter()
    cfg.schedules = {}
    cfg.optimizer = optax.adam(learning_rate=0.003)
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=500)

    cfg.evals = {
        "eval": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(100),
            num_batches=None,
            ds=make_ds(training=False),
            metrics={},
        ),
    }
    return cfg


def make_ds(training, fields=("image",)):
    """Images in [0, 1], and other fields as they are."""
    return kd.data.py.Tfds(
        name="mnist",
        split="train" if training else "test",
        shuffle=training,
        num_epochs=None if training else 1,
        batch_size=16,
        transforms=[
            kd.data.Elements(keep=list(fields)),
            kd.data.ValueRange(key="image", vrange=(0, 1)),
        ],
    )
