"""What holds for every metric, loss and summary that comes with the library."""

import copy
import dataclasses
import functools
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import konfig, kontext, losses, metrics, summaries
from kauldron.batch_mask import BATCH_MASK, UnmaskableError
from kauldron.metrics import merge_states

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def uniform(*shape):
    return RNG.uniform(size=shape).astype(np.float32)


def ids(num, *shape):
    return RNG.integers(0, num, shape)


def lpips_weights():
    weights, features_in = {}, 3
    for block, num in enumerate((2, 2, 3, 3, 3), start=1):
        for index in range(1, num + 1):
            weights[f"conv{block}_{index}/kernel"] = normal(3, 3, features_in, 2)
            weights[f"conv{block}_{index}/bias"] = normal(2)
            features_in = 2
        weights[f"lin{block}/kernel"] = uniform(1, 1, 2, 1)
    return weights


# Each entry: the metric, and what makes a batch of inputs.
EXAMPLES = {
    "Accuracy": (
        metrics.Accuracy(logits="x", labels="y", mask="m"),
        lambda: {"logits": normal(3, 4), "labels": ids(4, 3, 1), "mask": uniform(3, 1)},
    ),
    "BinaryAccuracy": (
        metrics.BinaryAccuracy(logits="x", labels="y"),
        lambda: {"logits": normal(3), "labels": ids(2, 3)},
    ),
    "Precision1": (
        metrics.Precision1(logits="x", labels="y"),
        lambda: {"logits": normal(3, 4), "labels": np.float32(ids(2, 3, 4))},
    ),
    "RocAuc": (
        metrics.RocAuc(logits="x", labels="y", unique_labels=[0, 1]),
        lambda: {"logits": normal(4, 2), "labels": np.array([[0], [1], [0], [1]])},
    ),
    "SingleDimension": (
        metrics.SingleDimension(tensor="x", index=1),
        lambda: {"tensor": normal(3, 4)},
    ),
    "Norm": (metrics.Norm(tensor="x"), lambda: {"tensor": normal(3, 4)}),
    "Norm-concat": (
        metrics.Norm(tensor="x", axis=None, aggregation_type="concat"),
        lambda: {"tensor": normal(3, 4)},
    ),
    "Std": (metrics.Std(values="x"), lambda: {"values": normal(3, 4)}),
    "Psnr": (
        metrics.Psnr(pred="x", target="y", in_vrange=[0.0, 1.0]),
        lambda: {"pred": uniform(2, 4, 4, 3), "target": uniform(2, 4, 4, 3)},
    ),
    "Ssim": (
        metrics.Ssim(pred="x", target="y", filter_size=3),
        lambda: {"pred": uniform(2, 4, 4, 3), "target": uniform(2, 4, 4, 3)},
    ),
    "LpipsVgg": (
        metrics.LpipsVgg(pred="x", target="y", weights=lpips_weights()),
        lambda: {"pred": uniform(1, 16, 16, 3), "target": uniform(1, 16, 16, 3)},
    ),
    "Ari": (
        metrics.Ari(
            predictions="x",
            labels="y",
            num_instances_true=3,
            num_instances_pred=3,
            ignored_ids=[0],
        ),
        lambda: {"predictions": ids(3, 2, 1, 4, 4, 1), "labels": ids(3, 2, 1, 4, 4, 1)},
    ),
    "TreeMap": (
        metrics.TreeMap(metric=metrics.Norm(tensor="x")),
        lambda: {"tensor": {"a": normal(3), "b": [normal(2, 2)]}},
    ),
    "TreeReduce": (
        metrics.TreeReduce(metric=metrics.Norm(tensor="x")),
        lambda: {"tensor": {"a": normal(3), "b": [normal(2, 2)]}},
    ),
    "SkipIfMissing": (
        metrics.SkipIfMissing(metrics.Std(values="x")),
        lambda: {"values": normal(3, 4)},
    ),
    "NoopMetric": (metrics.NoopMetric(), dict),
    "L1": (
        losses.L1(preds="x", targets="y"),
        lambda: {"preds": normal(3), "targets": normal(3)},
    ),
    "L2": (
        losses.L2(preds="x", targets="y", weight=0.5),
        lambda: {"preds": normal(3), "targets": normal(3), "mask": uniform(3)},
    ),
    "Huber": (
        losses.Huber(preds="x", targets="y"),
        lambda: {"preds": normal(3), "targets": normal(3)},
    ),
    "Value": (losses.Value(values="x"), lambda: {"values": normal(3)}),
    "AbsoluteValue": (losses.AbsoluteValue(values="x"), lambda: {"values": normal(3)}),
    "NegativeCosineSimilarity": (
        losses.NegativeCosineSimilarity(preds="x", targets="y"),
        lambda: {"preds": normal(3, 2), "targets": normal(3, 2)},
    ),
    "SoftmaxCrossEntropy": (
        losses.SoftmaxCrossEntropy(logits="x", labels="y"),
        lambda: {"logits": normal(3, 4), "labels": uniform(3, 4)},
    ),
    "SoftmaxCrossEntropyWithIntLabels": (
        losses.SoftmaxCrossEntropyWithIntLabels(logits="x", labels="y"),
        lambda: {"logits": normal(3, 4), "labels": ids(4, 3, 1)},
    ),
    "SigmoidBinaryCrossEntropy": (
        losses.SigmoidBinaryCrossEntropy(logits="x", labels="y"),
        lambda: {"logits": normal(3, 4), "labels": ids(2, 3, 4)},
    ),
    "ShowImages": (
        summaries.ShowImages(images="x", num_images=3, in_vrange=[0, 1]),
        lambda: {"images": uniform(2, 4, 4, 3)},
    ),
    "ShowBoxes": (
        summaries.ShowBoxes(images="x", boxes="y", rearrange_kwargs={}),
        lambda: {"images": uniform(2, 8, 8, 3), "boxes": uniform(2, 3, 4)},
    ),
    "ShowSegmentations": (
        summaries.ShowSegmentations(segmentations="x", palette=np.eye(3)),
        lambda: {"segmentations": ids(3, 2, 4, 4, 1)},
    ),
    "ShowDifferenceImages": (
        summaries.ShowDifferenceImages(images1="x", images2="y"),
        lambda: {"images1": uniform(2, 4, 4, 3), "images2": uniform(2, 4, 4, 3)},
    ),
    "HistogramSummary": (
        summaries.HistogramSummary(tensor="x", max_values=16),
        lambda: {"tensor": normal(3, 4)},
    ),
    "ShowPointCloud": (
        summaries.ShowPointCloud(point_clouds="x", configs={"size": [1, 2]}),
        lambda: {"point_clouds": normal(3, 3)},
    ),
    "ShowTexts": (
        summaries.ShowTexts(texts="x"),
        lambda: {"texts": ["one", "two", "three"]},
    ),
}
every_metric = pytest.mark.parametrize("name", EXAMPLES)
OF_ARRAYS = [name for name in EXAMPLES if name != "ShowTexts"]  # no strings inside jit
every_metric_of_arrays = pytest.mark.parametrize("name", OF_ARRAYS)


@functools.cache
def states(name):
    """Two states of the metric, made once: no test can change them."""
    metric, make_inputs = EXAMPLES[name]
    return tuple(metric.get_state(**make_inputs()) for _ in range(2))


# What follows computes all metrics in one program: it is compiled much sooner than many.


@functools.cache
def batches():
    """Two batches of inputs for all metrics of arrays, by name."""
    return tuple(
        {name: jax.tree.map(jnp.asarray, EXAMPLES[name][1]()) for name in OF_ARRAYS}
        for _ in range(2)
    )


@functools.cache
def states_made_in_jit():
    """The states of both batches, by name."""

    @jax.jit
    def get_states(batch):
        return {name: EXAMPLES[name][0].get_state(**batch[name]) for name in batch}

    return tuple(get_states(batch) for batch in batches())


@functools.cache
def states_merged_on_the_host():
    """The states of both batches, merged one by one, then passed through `jit`."""
    left, right = states_made_in_jit()
    return jax.jit(lambda states: states)(
        {name: left[name].merge(right[name]) for name in OF_ARRAYS}
    )


@functools.cache
def states_merged_together():
    """The states of both batches, merged as a tree."""
    return merge_states(*states_made_in_jit())


def plain(value):
    """A value as nested tuples of arrays, to compare it."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)
        }
    return value


def assert_same(left, right):
    left, right = jax.tree.flatten(plain(left)), jax.tree.flatten(plain(right))
    assert left[1] == right[1]
    for a, b in zip(left[0], right[0]):
        if np.asarray(a).dtype.kind in "OUS":
            assert np.asarray(a).tolist() == np.asarray(b).tolist()
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_every_public_metric_has_an_example():
    provided = {
        name
        for package in (metrics, losses, summaries)
        for name, member in list(vars(package).items())
        if isinstance(member, type) and issubclass(member, metrics.Metric)
    }
    missing = provided - set(EXAMPLES) - {"Metric", "Loss"}
    assert not missing, f"EXAMPLES above has no entry for {sorted(missing)}"


@every_metric
def test_is_hashable_and_equal_to_its_copies(name):
    metric, _ = EXAMPLES[name]
    assert hash(copy.copy(metric)) == hash(metric)
    assert copy.copy(metric) == metric
    assert metric != object()


@every_metric
def test_can_be_pickled(name):
    metric, make_inputs = EXAMPLES[name]
    copied = pickle.loads(pickle.dumps(metric))
    inputs = make_inputs()
    assert_same(copied(**inputs), metric(**inputs))


@every_metric
def test_empty_is_neutral_on_either_side(name):
    metric, _ = EXAMPLES[name]
    state = states(name)[0]
    expected = state.compute()
    assert_same(metric.empty().merge(state).compute(), expected)
    assert_same(state.merge(metric.empty()).compute(), expected)
    assert_same(metric.empty().finalize().merge(state).compute(), expected)


@every_metric
def test_compute_finalizes_by_itself(name):
    left, right = states(name)
    merged = left.merge(right)
    assert_same(merged.compute(), merged.finalize().compute())


@every_metric
def test_finalize_is_idempotent_and_finalized_states_merge(name):
    left, right = states(name)
    expected = left.merge(right).compute()
    final = left.finalize()
    assert_same(final.finalize().compute(), left.compute())
    assert_same(final.merge(right.finalize()).compute(), expected)
    assert_same(final.merge(right).compute(), expected)
    assert_same(left.merge(right.finalize()).compute(), expected)


@every_metric
def test_finalized_states_are_on_the_host(name):
    left, right = states(name)
    leaves = jax.tree.leaves(left.merge(right).finalize())
    assert not any(isinstance(leaf, jax.Array) for leaf in leaves)


@every_metric
def test_merging_does_not_change_the_operands(name):
    left, right = states(name)
    before = left.compute(), right.compute()
    left.merge(right).finalize()
    assert_same((left.compute(), right.compute()), before)


@every_metric_of_arrays
def test_states_made_in_jit_merge_on_the_host_and_pass_through_jit_again(name):
    metric, _ = EXAMPLES[name]
    left, right = (metric.get_state(**batch[name]) for batch in batches())
    eager = left.merge(right)
    again = states_merged_on_the_host()[name]
    assert again.parent == eager.parent
    assert_same(again.compute(), eager.compute())
    assert_same(states_merged_together()[name].compute(), eager.compute())


@every_metric_of_arrays
def test_shapes_of_states_need_no_data(name):
    metric, make_inputs = EXAMPLES[name]
    inputs = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, make_inputs()))
    state = jax.eval_shape(lambda inputs: metric.get_state(**inputs), inputs)
    assert metrics.State.isinstance(state)


@every_metric_of_arrays
def test_computes_without_transfer_guard_trouble(name):
    metric, _ = EXAMPLES[name]
    left, right = (states[name] for states in states_made_in_jit())
    expected = left.merge(right).compute()
    with jax.transfer_guard("disallow"):
        value = metric.empty().merge(left).merge(right).compute()
    assert_same(value, expected)


#
# Padded batches
#


def padded(array):
    """Two rows of filler after the real ones."""
    return np.concatenate([array, np.zeros((2, *array.shape[1:]), array.dtype)])


CHANGES_WITH_FILLER = {
    "Accuracy": {"mask": None},
    "HistogramSummary": {"max_values": None},
}


TAKE_A_MASK = [
    name
    for name, (metric, _) in EXAMPLES.items()
    if metric.takes_mask and name != "Norm-concat"
]


def with_and_without_filler(name):
    """The metric with keys, a context with filler, and one without."""
    metric, make_inputs = EXAMPLES[name]
    inputs = {k: v for k, v in make_inputs().items() if k != "mask"}
    size = len(jax.tree.leaves(inputs)[0])
    if name.startswith("Tree"):
        inputs = {"tensor": {"a": normal(size, 2), "b": [normal(size, 4)]}}
    keys = {name: f"preds.{name}" for name in inputs}
    inner = getattr(metric, "metric", metric)
    keyed = dataclasses.replace(inner, **keys, **CHANGES_WITH_FILLER.get(name, {}))
    if inner is not metric:
        keyed = dataclasses.replace(metric, metric=keyed)
    mask = np.arange(size + 2) < size
    context = {
        "preds": jax.tree.map(padded, inputs),
        "batch": {BATCH_MASK: mask},
    }
    return keyed, context, {"preds": inputs}


@functools.cache
def states_with_and_without_filler():
    """Of each metric what `with_and_without_filler` gives, and the two states."""
    made = {name: with_and_without_filler(name) for name in TAKE_A_MASK}

    @jax.jit
    def get_states(contexts):
        return {
            name: [made[name][0].get_state_from_context(context) for context in pair]
            for name, pair in contexts.items()
        }

    states = get_states({name: pair for name, (_, *pair) in made.items()})
    return {name: (*made[name], *states[name]) for name in made}


@pytest.mark.parametrize("name", TAKE_A_MASK)
def test_filler_of_a_padded_batch_does_not_count(name):
    metric, context, _, filled, real = states_with_and_without_filler()[name]
    metric.check_padding(context)
    expected = real.compute()
    assert_same(filled.compute(), expected)
    if name in ("Accuracy", "L2"):
        assert_same(metric(context=context), expected)


def test_metric_without_a_mask_refuses_padded_batches_by_name():
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class Mean(metrics.Metric):
        x: kontext.Key = kontext.REQUIRED
        State = metrics.AverageState

        def get_state(self, x):
            return metrics.AverageState.from_values(x)

    context = {"batch": {"x": np.ones(2), BATCH_MASK: np.array([True, False])}}
    for metric in (Mean(x="batch.x"), metrics.SkipIfMissing(Mean(x="batch.x"))):
        with pytest.raises(UnmaskableError, match=r"takes no `mask`"):
            metric.check_padding(context)
    Mean(x="params.x").check_padding(context)  # parameters are never filler


def as_config(metric):
    """The config of a metric: its class and its fields."""
    cls = type(metric)
    fields = dataclasses.fields(metric) if dataclasses.is_dataclass(metric) else ()
    return konfig.ConfigDict(
        {
            "__qualname__": f"{cls.__module__}:{cls.__qualname__}",
            **{f.name: as_value(getattr(metric, f.name)) for f in fields},
        }
    )


def as_value(value):
    if isinstance(value, metrics.Metric):
        return as_config(value)
    if isinstance(value, tuple):
        return [as_value(item) for item in value]
    return dict(value) if hasattr(value, "items") else value


@every_metric
def test_survives_a_config_round_trip(name):
    metric, _ = EXAMPLES[name]
    if name == "LpipsVgg":
        metric = dataclasses.replace(metric, weights="weights.npz")
    text = json.dumps(json.loads(as_config(metric).to_json()))
    resolved = konfig.resolve(konfig.ConfigDict(json.loads(text)))
    assert resolved == metric
    assert hash(resolved) == hash(metric)
