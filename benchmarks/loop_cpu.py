"""`trainer.train()` against a bare loop that calls one jitted step per batch.

An autoencoder 784-128-784, batch 256, Adam, on 60 000 random pictures: values to
[0, 1], metrics every 100 steps, the default writer. The bare loop cuts its batches with
numpy and logs nothing. Its parameters have the same names: XLA's schedule of a step goes by
their order, and on two cores that alone is worth 6 %.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from figures import show

from kauldron import kd

WARM_UP = 20


def make_images(count: int) -> np.ndarray:
    """Random pictures."""
    return np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)


#
# Ours
#


class Clock(kd.evals.EvaluatorBase):
    """Notes when its step is done: compilation and the first steps are left out."""

    times: list[float]

    def evaluate(self, state: Any, step: int) -> None:
        jax.block_until_ready(state)
        self.times.append(time.perf_counter())


def train_seconds(images: np.ndarray, batch: int, steps: int) -> float:
    """Time of `train()` from a step in it to its end."""
    times: list[float] = []
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
        train_losses={"l2": kd.losses.L2(preds="preds.image", targets="batch.image")},
        train_metrics={"norm": kd.metrics.Norm(tensor="preds.image")},
        optimizer=optax.adam(1e-3),
        num_train_steps=WARM_UP + steps,
        log_metrics_every=100,
        profiler=None,
        evals={"clock": Clock(run=kd.evals.Once(WARM_UP), times=times)},
    )
    trainer.train()
    return time.perf_counter() - times[0]


#
# The limit
#


def numpy_batches(images: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """What a careful person writes by hand."""
    rng = np.random.default_rng(0)
    scale = np.float32(1 / 255)
    while True:
        order = rng.permutation(len(images))
        for start in range(0, len(images) - size + 1, size):
            rows = order[start : start + size]
            yield np.multiply(images[rows], scale, dtype=np.float32)


def make_bare_loop(images: np.ndarray, size: int) -> Any:
    """A function that trains some steps and says how long that took."""
    encoder, decoder = nn.Dense(128), nn.Dense(784)
    optimizer = optax.adam(1e-3)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Any, batch: jax.Array) -> Any:
        params, opt_state = state
        flat = batch.reshape(size, -1)

        def loss(params: Any) -> jax.Array:
            code = encoder.apply(params["encoder"], flat)
            return jnp.mean((decoder.apply(params["decoder"], code) - flat) ** 2)

        grads = jax.grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    @jax.jit
    def init(key: jax.Array) -> Any:
        keys = jax.random.split(key)
        params = {
            "encoder": encoder.init(keys[0], jnp.zeros((1, 784))),
            "decoder": decoder.init(keys[1], jnp.zeros((1, 128))),
        }
        return params, optimizer.init(params)

    batches = numpy_batches(images, size)

    def seconds(steps: int) -> float:
        state = init(jax.random.PRNGKey(0))
        state = jax.block_until_ready(step(state, next(batches)))
        started = time.perf_counter()
        for _ in range(steps):
            state = step(state, next(batches))
        jax.block_until_ready(state)
        return time.perf_counter() - started

    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a quick look")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    steps, rounds = (20, 1) if args.tiny else (args.steps, args.rounds)
    batch, count = (8, 64) if args.tiny else (256, 60_000)
    images = make_images(count)
    bare_seconds = make_bare_loop(images, batch)
    ours, limit, ratios = [], [], []
    for _ in range(rounds):
        limit.append(steps / bare_seconds(steps))
        ours.append(steps / train_seconds(images, batch, steps))
        ratios.append(ours[-1] / limit[-1])
    show(
        "loop_cpu/steps_per_second",
        statistics.median(ours),
        statistics.median(limit),
        unit="steps/s",
        digits=1,
        ratio=round(statistics.median(ratios), 3),
        goal=1.0,
    )


if __name__ == "__main__":
    main()
