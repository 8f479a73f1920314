"""Trees of states accumulated over batches."""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import metrics, summaries
from kauldron.metrics import merge_states

METRICS = {
    "accuracy": metrics.Accuracy(),
    "auc": metrics.RocAuc(),
    "nested": {"norm": metrics.Norm()},
}


@jax.jit
def get_states(logits, labels):
    return {
        "accuracy": METRICS["accuracy"].get_state(logits=logits, labels=labels),
        "auc": METRICS["auc"].get_state(logits=logits, labels=labels),
        "nested": {"norm": METRICS["nested"]["norm"].get_state(tensor=logits)},
    }


def batches(num):
    rng = np.random.default_rng(0)
    for _ in range(num):
        yield (
            jnp.asarray(rng.normal(size=(4, 2)), jnp.float32),
            jnp.asarray(rng.integers(0, 2, (4, 1))),
        )


def test_merged_trees_equal_the_values_of_all_data():
    merged = None
    for batch in batches(5):
        merged = merge_states(merged, get_states(*batch))
    logits, labels = (jnp.concatenate(parts) for parts in zip(*batches(5)))
    assert merged["accuracy"].compute() == METRICS["accuracy"](
        logits=logits, labels=labels
    )
    assert merged["auc"].compute() == METRICS["auc"](logits=logits, labels=labels)
    expected = METRICS["nested"]["norm"](tensor=logits)
    assert merged["nested"]["norm"].compute() == pytest.approx(expected, rel=1e-6)


def test_nothing_is_neutral():
    states = get_states(*next(batches(1)))
    assert merge_states(None, states) is states
    assert merge_states(states, None) is states
    assert merge_states(None, None) is None


def test_empty_states_are_neutral_and_teach_nothing():
    metric = metrics.RocAuc()
    logits, labels = next(batches(1))
    state = metric.get_state(logits=logits, labels=labels)
    merged = metric.empty()
    for _ in range(3):
        merged = merge_states(merged, state)
    assert merged.compute() == state.compute()
    assert merge_states(state, metric.empty()).compute() == state.compute()


def test_trees_of_different_structure_are_refused():
    states = get_states(*next(batches(1)))
    with pytest.raises(ValueError, match="different structure"):
        merge_states(states, {"accuracy": states["accuracy"]})


def test_states_of_different_metrics_are_refused():
    left, right = (metrics.Psnr(clip=clip).empty() for clip in (1.0, 2.0))
    with pytest.raises(ValueError, match="from different metrics"):
        merge_states({"a": left}, {"a": right})


def test_metric_without_hash_is_merged_on_the_host():
    class Unhashable(metrics.Metric):
        __hash__ = None
        State = metrics.AverageState

        def get_state(self, x):
            return metrics.AverageState.from_values(x)

    state = Unhashable().get_state(x=np.ones(2))
    assert merge_states(state, state).compute() == 1.0


def test_averages_stay_on_the_device():
    merged = get_states(*next(batches(1)))
    with jax.transfer_guard_device_to_host("disallow"):
        for batch in batches(3):
            merged = merge_states(merged, get_states(*batch))
    assert isinstance(merged["accuracy"].total, jax.Array)
    assert isinstance(merged["nested"]["norm"].total, jax.Array)


def test_merge_is_traced_once_and_not_per_batch():
    calls = []

    @flax.struct.dataclass
    class Counting(metrics.AverageState):
        def merge(self, other):
            calls.append(1)
            return super().merge(other)

    merged = None
    for i in range(10):
        states = {"a": Counting.from_values(jnp.ones(2)), "b": Counting.empty()}
        merged = merge_states(merged, states)
        if i == 2:
            num_calls = len(calls)
    assert len(calls) == num_calls
    assert merged["a"].compute() == 1.0


def test_truncating_summaries_merge_beside_averages():
    show, norm = summaries.ShowImages(num_images=3), metrics.Norm()
    images = jnp.linspace(0, 1, 2 * 4).reshape(2, 2, 2, 1)
    merged = None
    for _ in range(3):
        states = {
            "s": show.get_state(images=images),
            "n": norm.get_state(tensor=images),
        }
        merged = merge_states(merged, states)
    assert merged["s"].compute().shape == (3, 2, 2, 1)
    assert merged["n"].compute() == pytest.approx(norm(tensor=images))
