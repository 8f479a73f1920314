"""A generative adversarial network of digits: two losses, two optimizers.

    kauldron train --cfg=examples/gan_multi_optimizer.py --cfg.workdir=/tmp/gan

Each loss is minimised by its own optimizer, which may change only its own part of the
model (`kd.optim.select`).
"""

from kauldron import konfig

with konfig.imports():
    import optax
    from sklearn import datasets

    import gan_model
    from kauldron import kd


def get_config():
    """The experiment."""
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 3000
    cfg.log_summaries_every = 500

    cfg.train_ds = kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "images"},
        shuffle=True,
        batch_size=64,
        transforms=[
            kd.data.ValueRange(key="image", in_vrange=(0, 16), vrange=(-1, 1)),
            kd.data.Cast(key="image", dtype="float32"),
            kd.data.Rearrange(key="image", pattern="h w -> (h w)"),
        ],
    )
    cfg.model = gan_model.Gan(real="batch.image")
    cfg.losses = {
        "discriminator": gan_model.DiscriminatorLoss(
            real_logits="preds.real_logits", fake_logits="preds.fake_logits"
        ),
        "generator": gan_model.GeneratorLoss(fake_logits="preds.fake_logits"),
    }
    cfg.train_summaries = {
        "generated": kd.summaries.ShowImages(
            images="preds.image", num_images=8, in_vrange=(-1, 1)
        ),
    }
    cfg.trainstep = kd.contrib.train.MultiTrainStep()
    cfg.optimizer = kd.contrib.train.multi_optimizer(
        discriminator=kd.optim.partial_updates(
            optax.adam(2e-4, b1=0.5), mask=kd.optim.select("discriminator")
        ),
        generator=kd.optim.partial_updates(
            optax.adam(5e-4, b1=0.5), mask=kd.optim.select("generator")
        ),
    )
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=1000)
    return cfg
