"""Start from a part of another model.

The encoder of `digits_autoencoder.py` becomes the first layer of a classifier. It keeps
its weights; only the new layers are trained:

    kauldron train --cfg=examples/digits_autoencoder.py --cfg.workdir=/tmp/digits

    kauldron train --cfg=examples/finetune_partial_loading.py \\
        --cfg.init_transform.workdir=/tmp/digits --cfg.workdir=/tmp/finetuned
"""

import digits_classifier

from kauldron import konfig

with konfig.imports():
    import optax
    from flax import linen as nn

    from kauldron import kd

NUM_TRAIN = 1500  # the digits that the encoder was trained on
NUM_CLASSES = 10


def get_config():
    """The experiment."""
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 400
    cfg.log_metrics_every = 50

    cfg.train_ds = digits_classifier.make_ds(
        kd.data.py.SliceDataset(NUM_TRAIN), shuffle=True
    )
    cfg.eval_ds = digits_classifier.make_ds(
        kd.data.py.SliceDataset(NUM_TRAIN, None), shuffle=False
    )

    cfg.model = kd.nn.Sequential(
        inputs="batch.image",
        outputs="logits",
        layers=[
            kd.nn.Rearrange("b h w c -> b (h w c)"),
            nn.Dense(features=16),  # the encoder
            nn.Dense(features=64),
            nn.relu,
            nn.Dense(features=NUM_CLASSES),
        ],
    )
    # From the path in the new state to the path in the checkpoint.
    cfg.init_transform = kd.ckpts.PartialKauldronLoader(
        workdir=konfig.required(str),
        new_to_old={"params.layers_1": "params.encoder"},
    )
    # What the mask does not choose stays as it was loaded.
    cfg.optimizer = kd.optim.partial_updates(
        optax.adam(learning_rate=3e-3),
        mask=kd.optim.exclude("layers_1"),
    )
    cfg.train_losses = {
        "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="preds.logits", labels="batch.label"
        ),
    }
    cfg.train_metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds.logits", labels="batch.label"),
    }
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=200)
    cfg.evals = {
        "test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(100), num_batches=None),
    }
    return cfg
