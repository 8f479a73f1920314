"""`Evaluator` with three metrics against a bare loop with one jitted call per batch.

A classifier 784-512-512-10 over random pictures: values to [0, 1], batches of 256, the
loss and three metrics merged over the whole data. The bare loop cuts its batches with
numpy, adds the same sums up on the device, and reads them once at the end.

    python benchmarks/eval.py [--tiny]
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from figures import in_turn, show

from kauldron import kd, kontext

BATCH = 256
NUM_CLASSES = 10


class Classifier(nn.Module):
    """Three dense layers."""

    image: kontext.Key = "batch.image"

    @nn.compact
    def __call__(self, image: jax.Array) -> dict[str, jax.Array]:
        x = image.reshape(image.shape[0], -1)
        for features in (512, 512):
            x = nn.relu(nn.Dense(features)(x))
        return {"logits": nn.Dense(NUM_CLASSES)(x)}


def make_arrays(num_batches: int) -> dict[str, np.ndarray]:
    """Random pictures and labels."""
    rng = np.random.default_rng(0)
    count = num_batches * BATCH
    return {
        "image": rng.integers(0, 256, (count, 28, 28), dtype=np.uint8),
        "label": rng.integers(0, NUM_CLASSES, (count, 1), dtype=np.int32),
    }


def make_trainer(arrays: dict[str, np.ndarray]) -> kd.train.Trainer:
    """The experiment with its evaluator."""
    ds = kd.data.py.Arrays(
        arrays,
        shuffle=False,
        num_epochs=1,
        batch_size=BATCH,
        transforms=[kd.data.ValueRange(key="image", vrange=(0, 1))],
    )
    logits = {"logits": "preds.logits", "labels": "batch.label"}
    return kd.train.Trainer(
        workdir=tempfile.mkdtemp(),
        train_ds=ds,
        eval_ds=ds,
        model=Classifier(),
        optimizer=optax.adam(1e-3),
        train_losses={"xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(**logits)},
        train_metrics={
            "accuracy": kd.metrics.Accuracy(**logits),
            "brightness": kd.metrics.Norm(tensor="batch.image", axis=(-2, -1)),
            "norm": kd.metrics.Norm(tensor="preds.logits"),
        },
        evals={"test": kd.evals.Evaluator(run=kd.evals.Once(0))},
    )


#
# The limit
#


@functools.partial(jax.jit, static_argnames="model")
def bare_step(model: nn.Module, params: Any, sums: Any, image: Any, label: Any) -> Any:
    """Loss and metrics of a batch, added up."""
    logits = model.apply({"params": params}, image)["logits"]
    label = label[:, 0]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, label)
    return sums + jnp.stack(
        [
            losses.sum(),
            (logits.argmax(-1) == label).sum().astype(jnp.float32),
            jnp.linalg.norm(image, axis=(-2, -1)).sum(),
            jnp.linalg.norm(logits, axis=-1).sum(),
        ]
    )


def bare_loop(model: nn.Module, params: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The means of loss and metrics over all batches."""
    sums = jnp.zeros(4)
    count = len(arrays["label"])
    for start in range(0, count, BATCH):
        image = arrays["image"][start : start + BATCH].astype(np.float32) / 255
        label = arrays["label"][start : start + BATCH]
        sums = bare_step(model, params, sums, image, label)
    return np.asarray(sums) / count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="quick run")
    tiny = parser.parse_args().tiny
    num_batches, rounds = (4, 1) if tiny else (400, 9)
    arrays = make_arrays(num_batches)
    trainer = make_trainer(arrays)
    state = trainer.init_state()
    evaluator: Any = trainer.evals["test"]

    def ours() -> Any:
        return evaluator.evaluate(state, 0)

    def limit() -> Any:
        return bare_loop(trainer.model, state.params, arrays)

    measured = ours().compute()
    values = {**measured.loss_values, **measured.metric_values}
    values.pop("losses/total")
    np.testing.assert_allclose(list(values.values()), limit(), rtol=1e-3)
    times = in_turn(ours, limit, rounds=rounds)
    rates = (num_batches / statistics.median(found) for found in times)
    ratio = statistics.median(b / a for a, b in zip(*times))
    show(
        "eval_batches_per_second",
        *rates,
        unit="batches/s",
        digits=1,
        ratio=round(ratio, 3),
    )


if __name__ == "__main__":
    main()
