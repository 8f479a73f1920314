"""An autoencoder of handwritten digits: the smallest complete experiment.

The data are the 1797 scanned digits that ship with scikit-learn, so nothing is
downloaded. Run it with:

    kauldron train --cfg=examples/digits_autoencoder.py --cfg.workdir=/tmp/digits

and change anything from the command line:

    ... --cfg.model.encoder.features=8 --cfg.num_train_steps=500
"""

from kauldron import konfig

with konfig.imports():
    import optax
    from flax import linen as nn
    from sklearn import datasets

    from kauldron import kd

NUM_TRAIN = 1500  # the other 297 digits are held out


def get_config():
    """The experiment."""
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 1000
    cfg.log_metrics_every = 100
    cfg.log_summaries_every = 500

    cfg.train_ds = _make_ds(kd.data.py.SliceDataset(NUM_TRAIN), shuffle=True)
    cfg.eval_ds = _make_ds(kd.data.py.SliceDataset(NUM_TRAIN, None), shuffle=False)

    cfg.model = kd.nn.FlatAutoencoder(
        inputs="batch.image",
        encoder=nn.Dense(features=16),
        decoder=nn.Dense(features=64),
    )
    cfg.train_losses = {
        "recon": kd.losses.L2(preds="preds.image", targets="batch.image"),
    }
    cfg.train_summaries = {
        "digits": kd.summaries.ShowImages(images="batch.image", num_images=8),
        "reconstructions": kd.summaries.ShowImages(images="preds.image", num_images=8),
    }
    cfg.schedules = {
        "learning_rate": optax.cosine_decay_schedule(
            init_value=2e-2, decay_steps=cfg.ref.num_train_steps
        ),
    }
    cfg.optimizer = optax.adam(learning_rate=cfg.ref.schedules["learning_rate"])
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=250)
    cfg.evals = {
        "test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(250), num_batches=None),
    }
    return cfg


def _make_ds(part, *, shuffle):
    return kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "images"},
        shuffle=shuffle,
        num_epochs=None if shuffle else 1,
        batch_size=100 if shuffle else 99,
        transforms=[
            part,
            kd.data.ValueRange(key="image", in_vrange=(0, 16), vrange=(0, 1)),
            kd.data.Cast(key="image", dtype="float32"),
            kd.data.Rearrange(key="image", pattern="h w -> h w 1"),
        ],
    )
