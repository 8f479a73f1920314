"""The protocol of metrics: class checks, keys, calls, hashes."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import einops
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kontext, ktyping, losses, metrics


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class WeightedMean(metrics.Metric):
    values: kontext.Key = kontext.REQUIRED
    weights: kontext.Key | None = None
    scale: float = 1.0
    names: Sequence[str] = ()
    table: Mapping[str, Any] | None = None

    @flax.struct.dataclass
    class State(metrics.AverageState["WeightedMean"]):
        def compute(self):
            return super().compute() * self.parent.scale

    def get_state(self, values, weights=None):
        return self.State.from_values(values, mask=weights)


CONTEXT = {"batch": {"x": np.array([1.0, 3.0]), "w": np.array([1.0, 3.0])}}


#
# Class checks
#


def test_state_without_flax_decorator_is_refused_at_class_definition():
    with pytest.raises(TypeError, match=r"Bad.*@flax\.struct\.dataclass"):

        class Bad(metrics.Metric):
            class State(metrics.AverageState):
                pass


def test_compute_on_the_metric_is_refused_at_class_definition():
    with pytest.raises(ValueError, match=r"Bad.*State\.compute.*self\.parent"):

        class Bad(metrics.Metric):
            def compute(self):
                return 1


def test_metric_without_get_state_cannot_be_made():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Unfinished(metrics.Metric):
        pass

    with pytest.raises(TypeError, match="get_state"):
        Unfinished()


def test_get_state_must_return_a_state():
    class Bad(metrics.Metric):
        def get_state(self, x):
            return x

    with pytest.raises(TypeError, match=r"Bad\.get_state\(\) must return a state"):
        Bad()(x=1)


def test_metric_without_state_class_has_no_empty_state():
    class Bare(metrics.Metric):
        def get_state(self, x):
            return metrics.AverageState.from_values(x)

    assert Bare()(x=np.ones(2)) == 1.0
    with pytest.raises(NotImplementedError, match="Bare"):
        Bare().empty()


#
# Calls and keys
#


def test_called_with_inputs():
    assert WeightedMean(scale=2.0)(values=np.array([1.0, 3.0])) == 4.0


def test_called_with_a_context():
    metric = WeightedMean(values="batch.x", weights="batch.w")
    assert metric(context=CONTEXT) == 2.5


def test_keys_that_are_none_are_not_passed():
    assert WeightedMean(values="batch.x")(context=CONTEXT) == 2.0


def test_context_together_with_inputs_is_refused():
    with pytest.raises(TypeError, match="either a context or the inputs"):
        WeightedMean(values="batch.x")(context=CONTEXT, values=np.ones(2))


def test_required_key_that_is_not_set_is_named():
    with pytest.raises(ValueError, match=r"WeightedMean.*values"):
        WeightedMean()(context=CONTEXT)


def test_path_that_leads_nowhere_is_a_key_error_with_suggestion():
    with pytest.raises(KeyError) as info:
        WeightedMean(values="batch.xx")(context=CONTEXT)
    assert "batch.xx" in str(info.value)
    assert "'batch.x'" in str(info.value)


def test_required_value_that_is_none_counts_as_missing():
    metric = WeightedMean(values="batch.x", weights="batch.w")
    with pytest.raises(KeyError, match=r"values='batch\.x'"):
        metric(context={"batch": {"x": None, "w": None}})


def test_optional_value_that_is_none_is_passed_on():
    metric = WeightedMean(values="batch.x", weights="batch.w")
    assert metric(context={"batch": {"x": np.ones(2), "w": None}}) == 1.0


def test_keys_that_do_not_fit_get_state_are_refused_with_both():
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class Misnamed(metrics.Metric):
        inputs: kontext.Key = kontext.REQUIRED

        def get_state(self, values):
            return metrics.AverageState.from_values(values)

    with pytest.raises(TypeError, match="signature does not match") as info:
        Misnamed(inputs="batch.x")(context=CONTEXT)
    assert "inputs" in str(info.value)
    assert "values" in str(info.value)


def test_shapes_that_do_not_fit_are_reported_with_keys_and_shapes():
    metric = metrics.Accuracy(logits="preds.logits", labels="batch.label")
    context = {
        "preds": {"logits": np.ones((4, 10))},
        "batch": {"label": np.ones((5, 1), int)},
    }
    with pytest.raises(ktyping.KTypeCheckError) as info:
        metric.get_state_from_context(context)
    for words in ("preds.logits", "batch.label", "(4, 10)", "(5, 1)", "Accuracy"):
        assert words in str(info.value)


def test_tree_in_place_of_an_array_is_told_with_its_paths_and_the_tree_metrics():
    metric = metrics.Norm(tensor="grads")
    grads = {name: {"kernel": np.ones((2, 2)), "bias": np.ones(2)} for name in "abc"}
    with pytest.raises(ktyping.KTypeCheckError) as info:
        metric.get_state_from_context({"grads": grads})
    for words in ("'grads.a.bias'", "...", "metrics.TreeMap", "metrics.TreeReduce"):
        assert words in str(info.value)


@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
def test_labels_without_last_axis_are_told_how_to_get_it(batch):
    metric = metrics.Accuracy(logits="preds.logits", labels="batch.label")
    context = {
        "preds": {"logits": np.ones((*batch, 10))},
        "batch": {"label": np.ones(batch, int)},
    }
    with pytest.raises(ktyping.KTypeCheckError, match=r"'batch\.label' lacks") as info:
        metric.get_state_from_context(context)
    pattern = str(info.value).split('pattern="')[1].split('"')[0]
    context["batch"]["label"] = einops.rearrange(context["batch"]["label"], pattern)
    assert metric(context=context) == 0.0


def test_other_failed_type_checks_have_no_such_hints():
    metric = metrics.Accuracy(logits="x", labels="y")
    context = {"x": np.ones((4, 10)), "y": np.ones((5, 1), int)}
    with pytest.raises(ktyping.KTypeCheckError) as info:
        metric.get_state_from_context(context)
    assert "is a tree" not in str(info.value) and "lacks" not in str(info.value)


def test_mask_that_does_not_fit_is_reported_with_keys_and_shapes():
    metric = metrics.Accuracy(logits="x", labels="y", mask="m")
    context = {"x": np.ones((4, 10)), "y": np.ones((4, 1), int), "m": np.ones((3, 1))}
    with pytest.raises(ValueError) as info:
        metric.get_state_from_context(context)
    for words in ("mask='m'", "(3, 1)", "(4, 1)"):
        assert words in str(info.value)


def test_get_state_from_context_calls_an_overridden_get_state():
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class Negated(WeightedMean):
        def get_state(self, values, weights=None):
            return super().get_state(-values, weights)

    assert Negated(values="batch.x")(context=CONTEXT) == -2.0


def test_metric_works_on_shapes_alone():
    metric = metrics.Accuracy(logits="x", labels="y")
    context = {
        "x": jax.ShapeDtypeStruct((4, 10), jnp.float32),
        "y": jax.ShapeDtypeStruct((4, 1), jnp.int32),
    }
    state = jax.eval_shape(metric.get_state_from_context, context)
    assert state.total.shape == ()
    assert state.parent == metric


def test_metric_names_are_those_of_a_scalar_by_default():
    assert WeightedMean().__metric_names__() is None


#
# Hash and equality
#


def test_lists_dicts_and_arrays_among_options_are_frozen():
    metric = WeightedMean(names=["a", "b"], table={"k": [1, {"n": np.arange(2)}]})
    assert metric.names == ("a", "b")
    assert metric.table["k"][1]["n"] == (0, 1)
    assert hash(metric) == hash(copy.deepcopy(metric))


def test_options_are_frozen_before_post_init_and_without_super():
    seen = []

    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class WithPostInit(WeightedMean):
        def __post_init__(self):
            seen.append(self.names)

    assert isinstance(hash(WithPostInit(names=["a"])), int)
    assert seen == [("a",)]


def test_replaced_options_are_frozen_too():
    assert dataclasses.replace(WeightedMean(), names=["a"]).names == ("a",)


def test_metrics_with_equal_options_are_equal():
    assert WeightedMean(names=["a"]) == WeightedMean(names=("a",))
    assert WeightedMean(scale=1.0) != WeightedMean(scale=2.0)


def test_metrics_that_are_no_dataclasses_compare_by_type_and_attributes():
    class Plain(metrics.Metric):
        def __init__(self, k):
            self.k = k

        def get_state(self, x):
            return metrics.AverageState.from_values(x)

    assert Plain(np.arange(2)) == Plain(np.arange(2))
    assert Plain(1) != Plain(2)
    assert hash(Plain(1)) == hash(Plain(1))
    assert Plain(1) != metrics.NoopMetric()


#
# The metric that does nothing
#


def test_noop_metric_takes_anything_and_computes_an_empty_dict():
    assert metrics.NoopMetric()(x=1, y="z") == {}
    assert metrics.NoopMetric()(context={"a": 1}) == {}
    assert metrics.NoopMetric()() == {}


def test_two_noop_metrics_merge():
    left, right = (metrics.NoopMetric().get_state() for _ in range(2))
    assert left.merge(right).compute() == {}
    assert metrics.NoopMetric() == metrics.NoopMetric()


def test_class_numbers_where_a_distribution_is_expected_are_told_by_name():
    loss = losses.SoftmaxCrossEntropy(logits="logits", labels="labels")
    context = {"logits": np.zeros((4, 3), np.float32), "labels": np.zeros((4, 1), int)}
    words = "SoftmaxCrossEntropyWithIntLabels takes"
    with pytest.raises(ktyping.KTypeCheckError, match=words):
        loss.get_state_from_context(context)
