"""`trainer.train()` of a ViT-B/16 against a bare loop; how long it takes to initialise.

Batches of 128 random pictures of 224 x 224, computed in bf16, parameters and Adam in fp32:
the time goes into arithmetic. The limit is one jitted call per step, on a batch that is
on the device.
"""

import argparse
import json
import statistics
import tempfile
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from kauldron import kd, writers


def make_model(variant):
    """Return the model of `examples/vit_b16.py`."""
    return kd.nn.MixedPrecision(
        model=kd.nn.Vit(
            encoder=kd.nn.VitEncoder.from_variant_str(
                variant, prepend_cls_token=True, encoder_norm=nn.LayerNorm()
            ),
            mode="cls_token",
            has_pre_logits=False,
            image="batch.image",
        )
    )


def make_trainer(model, images, labels, batch, steps):
    return kd.train.Trainer(
        workdir=tempfile.mkdtemp(),
        train_ds=kd.data.py.Arrays(
            {"image": images, "label": labels},
            shuffle=True,
            batch_size=batch,
            transforms=[kd.data.ValueRange(key="image", vrange=(0, 1))],
        ),
        model=model,
        train_losses={
            "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
                logits="preds.logits", labels="batch.label"
            )
        },
        optimizer=optax.adam(1e-4),
        num_train_steps=steps,
        log_metrics_every=steps // 2,
    )


def train_seconds(make, steps):
    """Seconds of `steps` steps, on the clock between two lines of the log."""
    trainer = make(2 * steps + 1)
    trainer.train()
    lines = writers.read_scalars(trainer.workdir / "train")
    times = {line["step"]: line["time"] for line in lines}
    return times[2 * steps] - times[steps]


def make_bare_loop(model, images, labels, batch):
    optimizer = optax.adam(1e-4)
    image = jnp.asarray(images[:batch])
    label = jnp.asarray(labels[:batch])[:, 0]

    def step(state, image):
        def loss(params):
            logits = model.apply(params, image.astype(jnp.float32) / 255)["logits"]
            return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

        params, opt_state = state
        grads = jax.grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    step = jax.jit(step, donate_argnums=0)

    def seconds(start_params, steps):
        state = (start_params, optimizer.init(start_params))
        for _ in range(3):
            state = step(state, image)
        jax.block_until_ready(state)
        start = time.perf_counter()
        for _ in range(steps):
            state = step(state, image)
        jax.block_until_ready(state)
        return time.perf_counter() - start

    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.tiny:
        model = make_model("mu/16")
        batch, size, steps, rounds = 4, 32, 2, 1
    else:
        model = make_model("B/16")
        batch, size, steps, rounds = 128, 224, args.steps, args.rounds
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4 * batch, size, size, 3), dtype=np.uint8)
    labels = rng.integers(0, 1000, (4 * batch, 1), dtype=np.int32)

    def make(count):
        return make_trainer(model, images, labels, batch, count)

    trainer = make(steps)
    trainer.train_ds.element_spec  # noqa: B018, reads a record
    start = time.perf_counter()
    state = jax.block_until_ready(trainer.init_state())
    init_seconds = time.perf_counter() - start
    params = jax.tree.map(jnp.copy, {"params": state.params})
    device = jax.devices()[0].device_kind
    figure = {"name": "vit_gpu/init_seconds", "ours": round(init_seconds, 2)}
    print(json.dumps(figure | {"unit": "s", "device": device, "goal": 15}))
    bare_loop = make_bare_loop(model, images, labels, batch)
    ours, limit = [], []
    for _ in range(rounds):
        ours.append(batch * steps / train_seconds(make, steps))
        limit.append(batch * steps / bare_loop(jax.tree.map(jnp.copy, params), steps))
    ours, limit = statistics.median(ours), statistics.median(limit)
    figure = {
        "name": "vit_gpu/images_per_second",
        "ours": round(ours, 1),
        "limit": round(limit, 1),
        "ratio": round(ours / limit, 3),
        "unit": "images/s",
        "device": device,
        "goal": 0.99,
    }
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
