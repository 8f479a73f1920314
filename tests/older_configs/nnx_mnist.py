"""A classifier of MNIST, written in NNX."""

from kauldron import konfig

with konfig.imports():
    import optax
    from kauldron.contrib.modules import knnx_examples

    from kauldron import kd


def get_config():
    cfg = kd.train.Trainer()
    cfg.seed = 42
    cfg.train_ds = kd.data.py.Tfds(
        name="mnist",
        split="train",
        shuffle=True,
        batch_size=16,
        transforms=[
            kd.data.Elements(keep=["image", "label"]),
            kd.data.ValueRange(key="image", vrange=(0, 1)),
            kd.data.Rearrange(key="image", pattern="h w c -> (h w c)"),
            kd.data.Rearrange(key="label", pattern="-> 1"),
        ],
    )
    cfg.model = knnx_examples.SimpleKdNnxModule(input_dim=784, hdim=128, output_dim=10)
    cfg.rng_streams = kd.train.RngStreams(
        [kd.train.RngStream(name="default", init=True, train=True, eval=True)]
    )
    cfg.num_train_steps = 1000
    cfg.train_losses = {
        "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="preds", labels="batch.label"
        ),
    }
    cfg.train_metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds", labels="batch.label"),
    }
    cfg.optimizer = optax.adam(learning_rate=0.003)
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=500)
    return cfg
