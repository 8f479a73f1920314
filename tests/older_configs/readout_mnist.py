"""A linear readout of a frozen autoencoder."""

from kauldron import konfig
from tests.older_configs import mnist_autoencoder

with konfig.imports():
    import optax
    from flax import linen as nn

    from kauldron import kd


def get_config():
    cfg = kd.train.Trainer()
    cfg.seed = 42
    cfg.aux = {"xid": konfig.placeholder(int)}

    cfg.train_ds = _make_ds(training=True)
    cfg.model = kd.contrib.nn.ReadoutWrapper(
        model=kd.contrib.nn.get_model_from_xid(xid=cfg.ref.aux.xid),
        readout_heads={"classifier": nn.Dense(features=10, name="readout_head")},
        readout_inputs={"classifier": {"inputs": "interms.model.encoder.__call__[0]"}},
        finetune=False,
    )
    cfg.init_transform = kd.ckpts.PartialKauldronLoader(
        workdir=kd.ckpts.workdir_from_xid(xid=cfg.ref.aux.xid),
        new_to_old={"params.model": "params"},
    )
    cfg.num_train_steps = 1000
    cfg.train_losses = {
        "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="preds.readouts.classifier", labels="batch.label"
        ),
    }
    cfg.train_metrics = {
        "accuracy": kd.metrics.Accuracy(
            logits="preds.readouts.classifier", labels="batch.label"
        ),
    }
    cfg.optimizer = kd.optim.partial_updates(
        optax.adam(learning_rate=0.003), mask=kd.optim.exclude("model")
    )
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=500)
    cfg.evals = {
        "eval": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(100),
            num_batches=None,
            ds=_make_ds(training=False),
        ),
    }
    return cfg


def _make_ds(training):
    ds = mnist_autoencoder.make_ds(training, fields=("image", "label"))
    ds.transforms.append(kd.data.Rearrange(key="label", pattern="-> 1"))
    return ds
