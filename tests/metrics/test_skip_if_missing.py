"""Metrics that disappear where their inputs do not exist."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kontext, metrics

GRADS = {"a": {"bias": jnp.array([3.0, 4.0])}}


def skip(key: str) -> metrics.SkipIfMissing:
    return metrics.SkipIfMissing(metrics.Norm(tensor=key, axis=None))


@pytest.mark.parametrize(
    "context",
    [{}, {"grads": None}, {"grads": {"b": 1}}, {"grads": {"a": {"bias": None}}}],
)
def test_missing_inputs_compute_an_empty_dict(context):
    assert skip("grads.a.bias")(context=context) == {}


def test_existing_inputs_compute_the_value():
    assert skip("grads.a.bias")(context={"grads": GRADS}) == 5.0


@pytest.mark.parametrize("wrapper", [metrics.TreeMap, metrics.TreeReduce])
@pytest.mark.parametrize(
    "context", [{}, {"grads": None}, {"grads": {"a": {"kernel": jnp.ones(2)}}}]
)
def test_tree_metrics_are_skipped_too(wrapper, context):
    inner = metrics.Norm(tensor="grads.**.bias", axis=None, aggregation_type="concat")
    metric = metrics.SkipIfMissing(wrapper(metric=inner))
    assert metric(context=context) == {}
    filled = metric(context={"grads": GRADS})
    assert filled == ({"a": {"bias": 5.0}} if wrapper is metrics.TreeMap else 5.0)


@pytest.mark.parametrize("order", ["filled_first", "missing_first"])
def test_filled_state_wins_on_merge(order):
    metric = skip("grads.a.bias")
    filled = metric.get_state_from_context({"grads": GRADS})
    missing = metric.get_state_from_context({})
    merged = filled.merge(missing) if order[0] == "f" else missing.merge(filled)
    assert merged.compute() == 5.0
    assert missing.merge(missing).finalize().compute() == {}
    assert filled.merge(filled).compute() == 5.0


def test_merge_with_a_missing_state_inside_jit():
    metric = skip("grads.a.bias")
    filled = metric.get_state_from_context({"grads": GRADS})
    merged = jax.jit(lambda a, b: a.merge(b))(filled, metric.empty())
    assert merged.compute() == 5.0


def test_key_error_inside_the_metric_is_raised():
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class Broken(metrics.Metric):
        x: kontext.Key = kontext.REQUIRED

        def get_state(self, x):
            return {}["inside"]

    with pytest.raises(KeyError, match="inside"):
        metrics.SkipIfMissing(Broken(x="x"))(context={"x": 1})


def test_key_that_is_not_set_is_still_an_error():
    with pytest.raises(ValueError, match="tensor"):
        metrics.SkipIfMissing(metrics.Norm())(context={"x": 1})


def test_called_with_inputs_it_forwards():
    assert skip("x")(tensor=np.array([3.0, 4.0])) == 5.0


def test_metric_that_finds_its_inputs_itself_is_honoured():
    class Own(metrics.Metric):
        State = metrics.AverageState

        def get_state(self):
            raise AssertionError("not from keys")

        def get_state_from_context(self, context):
            return metrics.AverageState.from_values(context["odd key"])

    assert metrics.SkipIfMissing(Own())(context={"odd key": np.ones(2)}) == 1.0
