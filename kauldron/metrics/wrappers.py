"""Metrics around metrics: for every leaf of a tree, or only where inputs exist."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Self

import flax.struct
import jax

from kauldron import kontext
from kauldron.errors import ReadableKeyError
from kauldron.metrics.auto_state import AutoState, state_field
from kauldron.metrics.metric import Metric, check_inner_metric, none_message
from kauldron.metrics.state import EMPTY, MetricT, State, paired_states
from kauldron.metrics.state import State as BaseState

#
# For every leaf of a tree
#


@flax.struct.dataclass
class TreeState(State[MetricT]):
    """A tree of states.

    Attributes:
      tree: The states, or `EMPTY`.
    """

    tree: Any = EMPTY

    @classmethod
    def empty(cls) -> Self:
        return cls()

    def merge(self, other: Self) -> Self:
        if not isinstance(other, TreeState):
            raise TypeError(
                f"Cannot merge {type(self).__qualname__} with"
                f" {type(other).__qualname__}."
            )
        if self.tree is EMPTY or other.tree is EMPTY:
            return other if self.tree is EMPTY else self
        pairs, structure = paired_states(self.tree, other.tree)
        return self.replace(tree=structure.unflatten(a.merge(b) for a, b in pairs))

    def finalize(self) -> Self:
        return self.replace(tree=_map(lambda state: state.finalize(), self.tree))

    def compute(self) -> Any:
        """Return the tree of values."""
        return {} if self.tree is EMPTY else _map(lambda s: s.compute(), self.tree)


def _map(function: Any, *trees: Any) -> Any:
    return jax.tree.map(function, *trees, is_leaf=State.isinstance)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class _TreeMetric(Metric):
    """Keys of the inner metric, which may hold wildcards.

    What comes before the first wildcard is looked up in the context, the rest selects
    from the tree found there.
    """

    metric: Metric

    def __post_init__(self) -> None:
        check_inner_metric(self, self.metric)

    def __kontext_keys__(self) -> dict[str, Any]:
        return {
            name: key if key == kontext.REQUIRED else _glob(key).first_non_glob_parent
            for name, key in kontext.get_keypaths(self.metric).items()
            if key is not None
        }

    def resolve_inputs(self, context: Any) -> dict[str, Any]:
        inputs = kontext.resolve_from_keyed_obj(context, self)
        missing = [name for name, value in inputs.items() if value is None]
        if missing:
            raise ReadableKeyError(none_message(self.metric, missing))
        keys = kontext.get_keypaths(self.metric)
        return {
            name: self._select(name, _glob(keys[name]), tree)
            for name, tree in inputs.items()
        }

    @property
    def takes_mask(self) -> bool:
        return self.metric.takes_mask

    def _with_mask(self, inputs: dict[str, Any], mask: Any) -> dict[str, Any]:
        """Give every leaf the mask: its first axis is the batch."""
        some_tree = next(iter(inputs.values()))
        return {**inputs, "mask": jax.tree.map(lambda _: mask, some_tree)}

    def _select(self, name: str, path: kontext.GlobPath, tree: Any) -> Any:
        pattern = path.relative_to(path.first_non_glob_parent)
        if not len(pattern):
            return tree
        selected = kontext.filter_by_path(tree, pattern)
        if not jax.tree.leaves(selected):
            raise ReadableKeyError(
                f"Error for {type(self).__qualname__} of"
                f" {type(self.metric).__qualname__}: nothing matches {name}={str(path)!r}."
            )
        return selected

    def _leaf_states(self, trees: dict[str, Any]) -> tuple[list[State], Any]:
        """Return the state of each leaf, and the structure of the tree."""
        trees = {name: tree for name, tree in trees.items() if tree is not None}
        structures = [(name, jax.tree.structure(tree)) for name, tree in trees.items()]
        for (first, structure), (name, other) in itertools.pairwise(structures):
            if structure != other:
                raise ValueError(
                    f"{type(self).__qualname__} of {type(self.metric).__qualname__}:"
                    f" the trees {first!r} and {name!r} have different structures:"
                    f" {structure} and {other}."
                )
        leaves = zip(*(jax.tree.leaves(tree) for tree in trees.values()))
        states = [self.metric.get_state(**dict(zip(trees, leaf))) for leaf in leaves]
        return states, structures[0][1] if structures else None


def _glob(key: Any) -> kontext.GlobPath:
    return kontext.GlobPath.from_str(str(key))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class TreeMap(_TreeMetric):
    """Applies a metric to every leaf of its inputs and computes a tree of values.

    The inputs are trees of equal structure. Keys are those of the inner metric and may
    hold wildcards, such as `params.**.kernel`.

    Attributes:
      metric: What to apply.

    Example:
      >>> import numpy as np
      >>> from kauldron import metrics
      >>> norms = TreeMap(metric=metrics.Norm(tensor="params", axis=None))
      >>> values = norms(context={"params": {"a": np.ones(4), "b": np.zeros((2, 3))}})
      >>> {name: float(value) for name, value in values.items()}
      {'a': 2.0, 'b': 0.0}
    """

    State = TreeState

    def get_state(self, **kwargs: Any) -> State:
        states, structure = self._leaf_states(kwargs)
        tree = EMPTY if structure is None else structure.unflatten(states)
        return TreeState(tree=tree)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class TreeReduce(_TreeMetric):
    """Applies a metric to every leaf of its inputs and merges the states to one.

    The state is one of the inner metric. Keys may hold wildcards, as in `TreeMap`.

    Attributes:
      metric: What to apply. Inside `jit` its states must be mergeable there.

    Example:
      >>> import numpy as np
      >>> from kauldron import metrics
      >>> norm = metrics.Norm(tensor="params", axis=None, aggregation_type="concat")
      >>> context = {"params": {"a": 3 * np.ones(1), "b": 4 * np.ones((1, 1))}}
      >>> float(TreeReduce(metric=norm)(context=context))
      5.0
    """

    def get_state(self, **kwargs: Any) -> State:
        states, _ = self._leaf_states(kwargs)
        return self.metric.merge_leaf_states(states)

    def empty(self) -> State:
        return self.metric.empty()


#
# Only where inputs exist
#


@dataclasses.dataclass(frozen=True, eq=True)
class SkipIfMissing(Metric):
    """Computes `{}` when a key of the metric finds nothing, or `None`.

    Only the lookup of keys is guarded: errors of the metric itself are raised.

    Attributes:
      metric: The metric whose keys may be missing.

    Example:
      >>> import numpy as np
      >>> from kauldron import metrics
      >>> norm = SkipIfMissing(metrics.Norm(tensor="grads.w"))
      >>> norm(context={"grads": None})
      {}
      >>> float(norm(context={"grads": {"w": np.array([3.0, 4.0])}}))
      5.0
    """

    metric: Metric

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["SkipIfMissing"]):
        """The state of the metric, or nothing."""

        state: Any = state_field()

        def compute(self) -> Any:
            return {} if self.state is EMPTY else self.state.compute()

    def __post_init__(self) -> None:
        check_inner_metric(self, self.metric)

    def __kontext_keys__(self) -> dict[str, Any]:
        return kontext.get_keypaths(self.metric)

    @property
    def takes_mask(self) -> bool:
        return self.metric.takes_mask

    def get_state(self, **kwargs: Any) -> BaseState:
        return self.State(state=self.metric.get_state(**kwargs))

    def get_state_from_context(self, context: Any) -> BaseState:
        try:
            inputs = self.metric.resolve_inputs(context)
        except KeyError:
            return self.empty()
        if any(value is None for value in inputs.values()):
            return self.empty()
        # Not `get_state(**inputs)`: the metric may find its inputs in its own way.
        return self.State(
            state=self.metric.get_state_from_context(context), parent=self
        )
