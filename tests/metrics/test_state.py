"""What every state does: parents, merging, finalizing, computing."""

import copy
import dataclasses
import pickle
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kontext, metrics
from kauldron.metrics import EMPTY, State


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
