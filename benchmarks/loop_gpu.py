"""`trainer.train()` against the fastest bare loop, on whatever device jax finds.

An autoencoder 784-128-784, batch 256, Adam, on random pictures: so small that the time
goes into starting the work. The limit is one `lax.scan` over data on the device.
"""

import argparse
import statistics
import tempfile
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from figures import show

from kauldron import kd


def make_images(count):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8)


def train_seconds(images, batch, steps):
    """Time of the whole `train()` call, less that of one with a single step."""

    def run(num_steps):
        trainer = kd.train.Trainer(
            workdir=tempfile.mkdtemp(),
            train_ds=kd.data.py.Arrays(
                {"image": images},
                shuffle=True,
                batch_size=batch,
                transforms=[kd.data.ValueRange(key="image", vrange=(0, 1))],
            ),
            model=kd.nn.FlatAutoencoder(
                inputs="batch.image", encoder=nn.Dense(128), decoder=nn.Dense(784)
            ),
            train_losses={
                "l2": kd.losses.L2(preds="preds.image", targets="batch.image")
            },
            optimizer=optax.adam(1e-3),
            num_train_steps=num_steps,
            log_metrics_every=max(steps // 10, 1),
            log_summaries_every=None,
            profiler=None,
        )
        start = time.perf_counter()
        state, _ = trainer.train()
        jax.block_until_ready(state)
        return time.perf_counter() - start

    return run(2 * steps) - run(steps)


def make_bare_loop(images, size):
    """One scan over all steps; data on the device."""
    model = nn.Sequential([nn.Dense(128), nn.Dense(784)])
    records = jnp.asarray(images.reshape(len(images), -1))
    optimizer = optax.adam(1e-3)

    @jax.jit
    def init(key):
        params = model.init(key, jnp.zeros((1, 784)))
        return params, optimizer.init(params)

    def step(state, rows):
        params, opt_state = state
        batch = records[rows].astype(jnp.float32) / 255

        def loss(params):
            return jnp.mean((model.apply(params, batch) - batch) ** 2)

        grads = jax.grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    run = jax.jit(lambda state, rows: jax.lax.scan(step, state, rows)[0])

    def seconds(steps):
        rng = np.random.default_rng(0)
        rows = jnp.asarray(rng.integers(0, len(images), (steps, size), dtype=np.int32))
        state = init(jax.random.PRNGKey(0))
        jax.block_until_ready(run(state, rows))
        start = time.perf_counter()
        jax.block_until_ready(run(state, rows))
        return time.perf_counter() - start

    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--steps", type=int, default=20_000)
    args = parser.parse_args()
    steps, rounds = (20, 1) if args.tiny else (args.steps, 5)
    batch, count = (8, 64) if args.tiny else (256, 60_000)
    images = make_images(count)
    bare_loop = make_bare_loop(images, batch)
    ours, limit = [], []
    for _ in range(rounds):
        ours.append(steps / train_seconds(images, batch, steps))
        limit.append(steps / bare_loop(steps))
    show(
        "loop_gpu/steps_per_second",
        statistics.median(ours),
        statistics.median(limit),
        unit="steps/s",
        digits=1,
        device=jax.devices()[0].device_kind,
        goal=20_000,
    )


if __name__ == "__main__":
    main()
