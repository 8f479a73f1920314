"""Metrics around metrics."""

import dataclasses
import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kontext, metrics
from tests.metrics.values import values_of

#
# For every leaf of a tree
#


PARAMS = {
    "encoder": {"kernel": np.full((2, 2), 2.0), "bias": np.array([3.0, 4.0])},
    "decoder": {"kernel": np.ones((4,)), "bias": np.zeros((3,))},
    "scale": np.float32(2.0),
}


def norm(key: str, **kwargs) -> metrics.Norm:
    return metrics.Norm(tensor=key, axis=None, **kwargs)


#
# TreeMap
#


def test_tree_map_gives_a_tree_of_the_same_structure():
    values = metrics.TreeMap(metric=norm("params"))(context={"params": PARAMS})
    assert jax.tree.structure(values) == jax.tree.structure(PARAMS)
    assert values["encoder"]["kernel"] == 4.0
    assert values["encoder"]["bias"] == 5.0
    assert values["scale"] == 2.0


@pytest.mark.parametrize(
    "key, expected",
    [
        ("params.**.bias", {"params/encoder/bias", "params/decoder/bias"}),
        ("params.encoder.*", {"params/encoder/kernel", "params/encoder/bias"}),
        ("**.scale", {"params/scale"}),
    ],
)
def test_glob_keys_select_leaves(key, expected):
    values = metrics.TreeMap(metric=norm(key))(context={"params": PARAMS})
    names = kontext.flatten_with_path(values, separator="/")
    relative = key.startswith("params.encoder")
    prefix = "params/encoder/" if relative else "params/" if key[0] != "*" else ""
    assert {prefix + name for name in names} == expected


def test_flattened_names_are_joined_by_slashes():
    values = metrics.TreeMap(metric=norm("params"))(context={"params": PARAMS})
    names = kontext.flatten_with_path(
        {"param_norm": values}, prefix="metrics", separator="/"
    )
    assert "metrics/param_norm/encoder/kernel" in names


def test_glob_that_matches_nothing_is_a_key_error_with_metric_and_path():
    metric = metrics.TreeMap(metric=norm("params.**.gain"))
    with pytest.raises(KeyError, match=r"Norm.*params\.\*\*\.gain"):
        metric(context={"params": PARAMS})


def test_value_of_none_is_a_key_error_with_metric_and_path():
    metric = metrics.TreeMap(metric=norm("grads.**.bias"))
    with pytest.raises(KeyError, match=r"Norm.*grads\.\*\*\.bias"):
        metric(context={"grads": None})


def test_unset_required_keys_are_named():
    with pytest.raises(ValueError, match="tensor"):
        metrics.TreeMap(metric=metrics.Norm())(context={"params": PARAMS})


def test_several_inputs_are_trees_of_equal_structure():
    metric = metrics.TreeMap(metric=metrics.Std(values="x", mask="m"))
    context = {
        "x": {"a": np.array([[1.0, 3.0]]), "b": np.array([[2.0], [6.0]])},
        "m": {"a": np.ones((1, 1)), "b": np.array([[1.0], [0.0]])},
    }
    assert metric(context=context) == {"a": 1.0, "b": 0.0}
    context["m"].pop("b")
    with pytest.raises(ValueError, match="'values' and 'mask'"):
        metric(context=context)


def test_tree_states_merge_leaf_by_leaf():
    metric = metrics.TreeMap(metric=norm("x"))
    first = metric.get_state(tensor={"a": np.ones(4), "b": np.zeros(1)})
    second = metric.get_state(tensor={"a": np.zeros(4), "b": np.zeros(1)})
    assert first.merge(second).compute() == {"a": 1.0, "b": 0.0}
    assert jax.jit(lambda a, b: a.merge(b))(first, second).compute()["a"] == 1.0


def test_empty_tree_state_is_neutral():
    metric = metrics.TreeMap(metric=norm("x"))
    state = metric.get_state(tensor={"a": np.ones(4)})
    assert metric.empty().merge(state).compute() == {"a": 2.0}
    assert state.merge(metric.empty()).compute() == {"a": 2.0}
    assert metric.empty().merge(metric.empty()).finalize().compute() == {}


def test_tree_states_of_other_structure_or_type_do_not_merge():
    metric = metrics.TreeMap(metric=norm("x"))
    state = metric.get_state(tensor={"a": np.ones(4)})
    with pytest.raises(ValueError, match="different structure"):
        state.merge(metric.get_state(tensor={"b": np.ones(4)}))
    with pytest.raises(TypeError, match="AverageState"):
        state.merge(metrics.AverageState.empty())


def test_tree_map_collects_on_the_host():
    metric = metrics.TreeMap(metric=metrics.RocAuc(logits="x", labels="y"))
    logits, labels = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1], [0]])
    state = metric.get_state(logits={"a": logits}, labels={"a": labels})
    assert state.merge(state).compute() == {"a": 1.0}


#
# TreeReduce
#


def test_tree_reduce_gives_the_inner_state_with_the_inner_parent():
    inner = norm("params", aggregation_type="concat")
    metric = metrics.TreeReduce(metric=inner)
    for state in (metric.get_state(tensor=PARAMS), metric.empty()):
        assert isinstance(state, metrics.Norm.State)
        assert state.parent is inner


ORDERS = [None, 1, 2, 3, 0.5, np.inf, -np.inf]


@functools.cache
def norms_of_params():
    """Norms of all parameters together, by order."""
    of_trees = [
        metrics.TreeReduce(metric=norm("p", ord=order, aggregation_type="concat"))
        for order in ORDERS
    ]
    return dict(zip(ORDERS, values_of(*((m, {"tensor": PARAMS}) for m in of_trees))))


@pytest.mark.parametrize("order", ORDERS)
def test_concat_norm_is_the_norm_of_the_concatenation(order):
    everything = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(PARAMS)])
    value = norms_of_params()[order]
    # The smallest of norms of -inf: each leaf counts with its smallest entry.
    assert value == pytest.approx(np.linalg.norm(everything, ord=order), rel=1e-5)


def test_concat_norm_of_huge_leaves_does_not_overflow():
    metric = metrics.TreeReduce(metric=norm("p", ord=4, aggregation_type="concat"))
    tree = {"a": jnp.array([3e9]), "b": jnp.array([3e9])}
    assert metric(context={"p": tree}) == pytest.approx(3e9 * 2**0.25, rel=1e-5)


def test_concat_norm_does_not_grow_with_the_number_of_batches():
    metric = metrics.TreeReduce(metric=norm("p", aggregation_type="concat"))
    state = metric.get_state(tensor=PARAMS)
    merged = metric.empty()
    for _ in range(7):
        merged = merged.merge(state)
    assert merged.compute() == pytest.approx(state.compute(), rel=1e-6)


def test_average_norm_is_the_mean_over_leaves():
    metric = metrics.TreeReduce(metric=norm("p", aggregation_type="average"))
    tree = {"a": np.array([3.0, 4.0]), "b": np.array([1.0])}
    assert metric(context={"p": tree}) == 3.0


def test_tree_reduce_with_glob_inside_jit():
    metric = metrics.TreeReduce(metric=norm("p.**.bias", aggregation_type="concat"))
    state = jax.jit(lambda p: metric.get_state_from_context({"p": p}))(PARAMS)
    assert state.compute() == 5.0


def test_tree_reduce_of_an_empty_tree_is_empty():
    metric = metrics.TreeReduce(metric=norm("p", aggregation_type="concat"))
    assert metric(context={"p": {}}) == 0.0


def test_reducing_norms_without_choosing_warns_once_per_metric():
    metric = metrics.TreeReduce(metric=norm("p"))
    with pytest.warns(UserWarning, match="average.*concat"):
        metric(context={"p": PARAMS})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric(context={"p": PARAMS})
        metrics.TreeReduce(metric=norm("p", aggregation_type="average"))(
            context={"p": PARAMS}
        )
    with pytest.warns(UserWarning, match="average.*concat"):
        metrics.TreeReduce(metric=norm("p"))(context={"p": PARAMS})


def test_own_metrics_may_say_how_leaves_are_merged():
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class First(metrics.Norm):
        def merge_leaf_states(self, states):
            return states[0]

    assert metrics.TreeReduce(metric=First())(tensor={"a": np.ones(4)}) == 2.0


def test_tree_metrics_expose_the_keys_of_the_inner_metric():
    metric = metrics.TreeMap(metric=norm("params.enc.*.kernel"))
    keys = kontext.get_keypaths(metric)
    assert {name: str(path) for name, path in keys.items()} == {"tensor": "params.enc"}


@pytest.mark.parametrize(
    "wrapper", [metrics.TreeMap, metrics.TreeReduce, metrics.SkipIfMissing]
)
def test_wrappers_take_only_metrics(wrapper):
    with pytest.raises(TypeError, match=f"{wrapper.__name__} takes a metric, not str"):
        wrapper(metric="norm")


#
# Only where inputs exist
#


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
