"""Accumulating metrics over an evaluation, against the bare jitted computation.

Accuracy, cross entropy and the norm of the logits over batches that are on the device
already, merged inside the step and after the step: with 10 classes, where only the cost
of launching is left, and with 1000. Then an area under the ROC curve, which collects on
the host, over three numbers of batches, to see that its cost grows no faster.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from figures import in_turn, show

from kauldron import losses, metrics

METRICS = {
    "accuracy": metrics.Accuracy(logits="logits", labels="labels"),
    "loss": losses.SoftmaxCrossEntropyWithIntLabels(logits="logits", labels="labels"),
    "norm": metrics.Norm(tensor="logits"),
}
AUC = metrics.RocAuc(logits="logits", labels="labels")
BATCH = 256
Batch = dict[str, jax.Array]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a quick look")
    args = parser.parse_args()
    num_batches, repeats = (4, 1) if args.tiny else (1000, 7)
    for num_classes in (10,) if args.tiny else (10, 1000):
        stream = make_stream(num_batches, num_classes)
        name = f"{num_classes}_classes"
        for when, ours, limit in (
            ("in", merge_in_step, bare_in_step),
            ("after", merge_after_step, bare_after),
        ):
            compare(f"metrics/merge_{when}_step_{name}", stream, ours, limit, repeats)
    for num in (num_batches // 2, num_batches, 2 * num_batches):
        stream = make_stream(num, 10)
        compare(f"metrics/collect_{num}", stream, collect, bare_collect, repeats)


def make_stream(num_batches: int, num_classes: int) -> list[Batch]:
    """Batches on the device, a few of them over and over."""
    batches = [make_batch(seed, num_classes) for seed in range(8)]
    return [batches[i % len(batches)] for i in range(num_batches)]


def make_batch(seed: int, num_classes: int) -> Batch:
    rng = np.random.default_rng(seed)
    return {
        "logits": jnp.asarray(rng.normal(size=(BATCH, num_classes)), jnp.float32),
        "labels": jnp.asarray(rng.integers(0, num_classes, (BATCH, 1))),
    }


#
# Ours
#


@jax.jit
def get_states(batch: Batch) -> Any:
    return {name: m.get_state_from_context(batch) for name, m in METRICS.items()}


@jax.jit
def add_states(merged: Any, batch: Batch) -> Any:
    return {
        name: merged[name].merge(metric.get_state_from_context(batch))
        for name, metric in METRICS.items()
    }


get_auc_state = jax.jit(AUC.get_state_from_context)


def merge_in_step(stream: list[Batch]) -> dict[str, float]:
    merged = get_states(stream[0])
    for batch in stream[1:]:
        merged = add_states(merged, batch)
    return {name: float(state.compute()) for name, state in merged.items()}


def merge_after_step(stream: list[Batch]) -> dict[str, float]:
    merged = None
    for batch in stream:
        merged = metrics.merge_states(merged, get_states(batch))
    return {name: float(state.compute()) for name, state in merged.items()}


def collect(stream: list[Batch]) -> dict[str, Any]:
    merged = None
    for batch in stream:
        merged = metrics.merge_states(merged, get_auc_state(batch))
    final = merged.finalize()
    return {"probs": final.probs, "labels": final.labels}


#
# By hand
#


@jax.jit
def sums(batch: Batch) -> Any:
    logits, labels = batch["logits"], batch["labels"]
    hits = jnp.argmax(logits, axis=-1, keepdims=True) == labels
    log_probs = jax.nn.log_softmax(logits)
    entropy = -jnp.take_along_axis(log_probs, labels, axis=-1)
    norms = jnp.linalg.norm(logits, axis=-1)
    values = {"accuracy": hits, "loss": entropy, "norm": norms}
    return {name: (v.sum(), jnp.float32(v.size)) for name, v in values.items()}


@jax.jit
def add_sums(total: Any, batch: Batch) -> Any:
    return jax.tree.map(jnp.add, total, sums(batch))


@jax.jit
def add_trees(left: Any, right: Any) -> Any:
    return jax.tree.map(jnp.add, left, right)


@jax.jit
def probabilities(batch: Batch) -> tuple[jax.Array, jax.Array]:
    return jax.nn.softmax(batch["logits"]), batch["labels"][:, 0]


def bare_in_step(stream: list[Batch]) -> dict[str, float]:
    total = sums(stream[0])
    for batch in stream[1:]:
        total = add_sums(total, batch)
    return {name: float(s / n) for name, (s, n) in total.items()}


def bare_after(stream: list[Batch]) -> dict[str, float]:
    total = sums(stream[0])
    for batch in stream[1:]:
        total = add_trees(total, sums(batch))
    return {name: float(s / n) for name, (s, n) in total.items()}


def bare_collect(stream: list[Batch]) -> dict[str, Any]:
    pieces = []
    for batch in stream:
        piece = probabilities(batch)
        for array in piece:
            array.copy_to_host_async()
        pieces.append(piece)
    probs, labels = (np.concatenate(parts) for parts in zip(*pieces))
    return {"probs": probs, "labels": labels}


#
# Measuring
#


def compare(
    name: str,
    stream: list[Batch],
    ours: Callable[[list[Batch]], Any],
    limit: Callable[[list[Batch]], Any],
    repeats: int,
) -> None:
    """Time both in turn, check that they agree, and print the medians."""
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3),
        ours(stream),
        limit(stream),
    )
    times = in_turn(lambda: ours(stream), lambda: limit(stream), rounds=repeats)
    rates = (len(stream) / statistics.median(found) for found in times)
    show(name, *rates, unit="batches/s", digits=None)


if __name__ == "__main__":
    main()
