"""Evaluations in processes of their own, beside training.

Training writes checkpoints and goes on; other processes, perhaps on other machines that
see the same folder, evaluate them:

    kauldron train --cfg=examples/digits_standalone_eval.py --cfg.workdir=/tmp/digits

    kauldron eval --workdir=/tmp/digits --list
    kauldron eval --workdir=/tmp/digits --eval_names=curves
    kauldron eval --workdir=/tmp/digits --eval_names=last

Both sides may be stopped and started again at any time: no checkpoint is evaluated
twice, and the evaluations end when training is complete.
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

    held_out = kd.data.py.SliceDataset(NUM_TRAIN, None)
    cfg.train_ds = make_ds(kd.data.py.SliceDataset(NUM_TRAIN), shuffle=True)
    cfg.eval_ds = make_ds(held_out, shuffle=False)

    cfg.model = kd.nn.FlatAutoencoder(
        inputs="batch.image",
        encoder=nn.Dense(features=16),
        decoder=nn.Dense(features=64),
    )
    cfg.train_losses = {
        "recon": kd.losses.L2(preds="preds.image", targets="batch.image"),
    }
    cfg.optimizer = optax.adam(learning_rate=3e-3)
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=200)

    # One process for both curves. If an evaluation takes longer than the training
    # between two checkpoints, the older ones are skipped.
    curves = kd.evals.StandaloneEveryCheckpoint(job_group="curves")
    cfg.evals = {
        "test": kd.evals.Evaluator(run=curves),
        "train_subset": kd.evals.Evaluator(
            run=curves, ds=cfg.ref.train_ds, num_batches=3
        ),
        # Waits until training is complete, then runs once. Without the optimizer state
        # it needs a third of the memory.
        "last": kd.evals.Evaluator(
            run=kd.evals.StandaloneLastCheckpoint(),
            summaries={
                "digits": kd.summaries.ShowImages(images="batch.image", num_images=8),
                "recon": kd.summaries.ShowImages(images="preds.image", num_images=8),
            },
            discard_opt=True,
        ),
    }
    return cfg


def make_ds(part, *, shuffle):
    """The digits of one part, as images of floats in [0, 1]."""
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
