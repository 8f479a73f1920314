"""Evaluations in processes of their own, beside training.

Training writes checkpoints and continues; other processes, perhaps on other machines that
see the same folder, evaluate them:

    kauldron train --cfg=examples/digits_standalone_eval.py --cfg.workdir=/tmp/digits

    kauldron eval --workdir=/tmp/digits --list
    kauldron eval --workdir=/tmp/digits --eval_names=curves
    kauldron eval --workdir=/tmp/digits --eval_names=last

Both sides may be stopped and started again at any time: no checkpoint is evaluated
twice, and the evaluations end when training is complete.
"""

import digits_autoencoder

from kauldron import konfig

with konfig.imports():
    from kauldron import kd


def get_config():
    """The experiment of `digits_autoencoder.py`, with other evaluations."""
    cfg = digits_autoencoder.get_config()
    cfg.num_train_steps = 1000
    cfg.checkpointer.save_interval_steps = 200
    cfg.train_summaries = {}

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
