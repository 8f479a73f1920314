"""States, and merging whole trees of them."""

import copy
import dataclasses
import pickle
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kontext, metrics, summaries
from kauldron.metrics import EMPTY, State, merge_states

#
# States
#


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Scaled(metrics.Metric):
    """Sum of the values times a factor; counts how often it is finalized."""

    x: kontext.Key = kontext.REQUIRED
    factor: float = 1.0

    @flax.struct.dataclass
    class State(State["Scaled"]):
        total: Any
        num_finalized: int = flax.struct.field(pytree_node=False, default=0)

        @classmethod
        def empty(cls):
            return cls(total=0.0)

        def merge(self, other):
            return self.replace(total=self.total + other.total)

        def finalize(self):
            return self.replace(num_finalized=self.num_finalized + 1)

        def compute(self):
            return self.total * self.parent.factor, self.num_finalized

    def get_state(self, x):
        return self.State(total=jnp.sum(x))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Doubled(Scaled):
    @flax.struct.dataclass
    class State(Scaled.State):
        def merge(self, other):
            return super().merge(other)

        def compute(self):
            total, num_finalized = super().compute()
            return 2 * total, num_finalized

    def get_state(self, x):
        return super().get_state(x)


def test_parent_is_set_by_get_state_and_empty():
    metric = Scaled(x="x")
    assert metric.get_state(x=jnp.ones(2)).parent is metric
    assert metric.empty().parent is metric
    assert metric.get_state_from_context({"x": jnp.ones(2)}).parent is metric


def test_parent_defaults_to_empty():
    assert Scaled.State(total=1.0).parent is EMPTY
    assert Scaled.State.empty().parent is EMPTY


def test_parent_that_is_set_already_is_kept():
    inner = Scaled(x="x")

    class Wrapper(metrics.Metric):
        State = Scaled.State

        def get_state(self, x):
            return inner.get_state(x=x)

    assert Wrapper().get_state(x=jnp.ones(2)).parent is inner


@pytest.mark.parametrize("order", ["left", "right"])
def test_merged_parent_is_the_one_that_is_set(order):
    with_parent = Scaled(x="x").get_state(x=jnp.ones(2))
    without = Scaled.State(total=1.0)
    left, right = (with_parent, without)[:: 1 if order == "left" else -1]
    assert left.merge(right).parent is with_parent.parent


def test_states_of_different_metrics_do_not_merge():
    left, right = (Scaled(x="x", factor=f).get_state(x=jnp.ones(2)) for f in (1.0, 2.0))
    with pytest.raises(ValueError, match="from different metrics") as info:
        left.merge(right)
    assert repr(left.parent) in str(info.value)
    assert repr(right.parent) in str(info.value)
    assert "only allowed for states of the same metric" in str(info.value)


def test_states_of_different_classes_of_metrics_do_not_merge():
    with pytest.raises(ValueError, match="from different metrics"):
        Scaled().empty().merge(Doubled().empty())


def test_metrics_that_differ_only_in_keys_merge():
    left, right = (Scaled(x=key).get_state(x=jnp.ones(2)) for key in ("a", "b.c"))
    merged = left.merge(right)
    assert merged.parent is left.parent
    assert float(merged.total) == 4


def test_wrapped_metrics_that_differ_only_in_keys_merge():
    def state(key, factor=1.0):
        metric = metrics.SkipIfMissing(Scaled(x=key, factor=factor))
        return metric.get_state(x=jnp.ones(1))

    assert float(state("a").merge(state("b")).state.total) == 2
    with pytest.raises(ValueError, match="from different metrics"):
        state("a").merge(state("b", factor=3.0))


def test_compute_finalizes_once_also_through_super():
    for metric, expected in ((Scaled(), 3.0), (Doubled(), 6.0)):
        value, num_finalized = metric.get_state(x=jnp.ones(3)).compute()
        assert float(value) == expected
        assert num_finalized == 1


def test_parents_are_checked_through_super_merge_too():
    left, right = (Doubled(factor=f).get_state(x=jnp.ones(2)) for f in (1.0, 2.0))
    with pytest.raises(ValueError, match="from different metrics"):
        left.merge(right)
    assert float(left.merge(left).total) == 4


def test_error_in_compute_of_a_filled_state_is_raised_as_it_is():
    @flax.struct.dataclass
    class Failing(State):
        @classmethod
        def empty(cls):
            return cls()

        def merge(self, other):
            return self

        def compute(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Failing().compute()


def test_computing_on_the_host_inside_jit_says_where_to_compute():
    metric = metrics.RocAuc()

    def step(logits, labels):
        return metric.get_state(logits=logits, labels=labels).compute()

    with pytest.raises(Exception, match=r"outside of it"):
        jax.jit(step)(jnp.eye(2), jnp.array([[0], [1]]))


def test_states_are_found_as_leaves():
    tree = {"a": [Scaled().empty(), 1], "b": metrics.EmptyState()}
    leaves = jax.tree.leaves(tree, is_leaf=State.isinstance)
    assert [State.isinstance(leaf) for leaf in leaves] == [True, False, True]


def test_state_made_in_jit_merges_on_the_host_and_goes_through_jit_again():
    metric = metrics.Std()
    get_state = jax.jit(lambda x: metric.get_state(values=x))
    merged = get_state(jnp.ones((2, 2))).merge(get_state(jnp.zeros((2, 2))))
    again = jax.jit(lambda s: s.merge(s))(merged)
    assert again.parent == metric
    assert float(again.compute()) == 0.5


def test_empty_state_computes_an_empty_dict():
    state = metrics.EmptyState.empty()
    assert state.merge(metrics.EmptyState()) is state
    assert state.compute() == {}


def test_empty_sentinel_is_one_object_that_survives_copies():
    assert copy.deepcopy(EMPTY) is EMPTY
    assert pickle.loads(pickle.dumps(EMPTY)) is EMPTY
    assert hash(EMPTY) == hash(EMPTY)
    assert repr(EMPTY) == "EMPTY"
    assert jax.tree.leaves(EMPTY) == []
    assert jax.tree.map(lambda x: x, {"a": EMPTY}) == {"a": EMPTY}


def test_states_can_be_pickled_with_their_metric():
    state = metrics.Accuracy(logits="a", labels="b").empty()
    copied = pickle.loads(pickle.dumps(state))
    assert copied.parent == state.parent
    assert copied.compute() == 0.0


def test_generic_states_are_subscriptable_with_a_name():
    @flax.struct.dataclass
    class Named(metrics.AverageState["NotDefinedYet"]):
        pass

    assert Named.from_values(np.ones(2)).compute() == 1.0
    assert metrics.AutoState["Other"] is not None


#
# Trees of states
#


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
