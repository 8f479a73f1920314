"""What a metric accumulates: a small pytree that merges, and computes at the end."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.kontext.annotations import get_annotated

MetricT = TypeVar("MetricT")


class Empty(enum.Enum):
    """Type of `EMPTY`."""

    EMPTY = enum.auto()

    def __repr__(self) -> str:
        return "EMPTY"


EMPTY = Empty.EMPTY
"""Marks a value that is still missing. For jax a node without leaves, like `None`."""

jax.tree_util.register_pytree_node(
    Empty, lambda _: ((), None), lambda _, children: EMPTY
)


@flax.struct.dataclass
class State(abc.ABC, Generic[MetricT]):
    """Accumulated values of a metric.

    A state comes from `metric.get_state(...)` or `metric.empty()`, is merged with the
    states of further batches, and is computed once at the end. States never change:
    every method returns a new one.

    Subclasses are decorated with `@flax.struct.dataclass`.

    Attributes:
      parent: The metric this state belongs to (static). `get_state` and `empty` of the
        metric fill it in.
    """

    parent: MetricT = flax.struct.field(pytree_node=False, default=EMPTY, kw_only=True)

    if TYPE_CHECKING:  # what flax's decorator adds, which type checkers do not see
        __dataclass_fields__: ClassVar[dict[str, Any]]

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

        def replace(self, **changes: Any) -> Self: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, wrap in (("merge", _wrap_merge), ("compute", _wrap_compute)):
            method = cls.__dict__.get(name)
            if method is not None and not hasattr(method, "_wraps_state_method"):
                setattr(cls, name, wrap(method))

    @classmethod
    @abc.abstractmethod
    def empty(cls) -> Self:
        """Return the state of no data: merging with it changes nothing."""

    @abc.abstractmethod
    def merge(self, other: Self) -> Self:
        """Return the state of the data of both.

        Raises:
          ValueError: If the two belong to different metrics.
        """

    def finalize(self) -> Self:
        """Return the state on the host, as numpy arrays; it can still be merged."""
        return self

    @abc.abstractmethod
    def compute(self) -> Any:
        """Return the value. Finalizes the state first."""

    @staticmethod
    def isinstance(value: Any) -> bool:
        """Return whether `value` is a state; for `jax.tree.map(..., is_leaf=...)`."""
        return isinstance(value, State)


#
# What every subclass's merge and compute do besides their own work. Only the most
# derived method does it: `super().merge(other)` reaches the plain method.
#


def _wrap_merge(merge: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(merge)
    def wrapper(self: State, other: State) -> State:
        if type(self).merge is not wrapper:
            return merge(self, other)
        parent = _common_parent(self, other)
        if self.parent is not parent:
            self = self.replace(parent=parent)
        with jax.transfer_guard_host_to_device("allow"):  # the zeros of empty states
            merged = merge(self, other)
        return merged if merged.parent is parent else merged.replace(parent=parent)

    wrapper._wraps_state_method = True  # type: ignore[attr-defined]
    return wrapper


def _wrap_compute(compute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compute)
    def wrapper(self: State) -> Any:
        if type(self).compute is not wrapper:
            return compute(self)
        with jax.transfer_guard("allow"):
            state = self.finalize()
            try:
                value = compute(state)
            except Exception as error:
                if has_no_data(state):
                    raise ValueError(_no_data_message(state)) from error
                if is_traced(vars(state)):
                    error.add_note(_ON_THE_HOST)
                raise
        if value is EMPTY:
            raise ValueError(_no_data_message(state))
        return value

    wrapper._wraps_state_method = True  # type: ignore[attr-defined]
    return wrapper


_ON_THE_HOST = (
    "This metric computes its value on the host: return the state from the jitted"
    " function, and call compute() outside of it."
)


def _common_parent(state: State, other: Any) -> Any:
    """Return the metric of the merged state.

    Raise `TypeError` if `other` is not a state, `ValueError` if it is one of another
    metric.
    """
    if not isinstance(other, State):
        raise TypeError(
            f"Cannot merge {type(state).__qualname__} with {type(other).__qualname__}:"
            " not a state."
        )
    if state.parent is EMPTY or other.parent is EMPTY:
        return other.parent if state.parent is EMPTY else state.parent
    if not is_same_metric(state.parent, other.parent):
        raise ValueError(
            f"Cannot merge states from different metrics: {state.parent!r} and"
            f" {other.parent!r}. Merging is only allowed for states of the same metric"
            " (keys may differ, options may not)."
        )
    return state.parent


def has_no_data(state: State) -> bool:
    """Return whether some value of the state is still missing."""
    return any(
        value is EMPTY for name, value in vars(state).items() if name != "parent"
    )


def _no_data_message(state: State) -> str:
    owner = type(state).__qualname__ if state.parent is EMPTY else repr(state.parent)
    return (
        f"{owner}: there is nothing to compute, the state is empty. Merge the state of"
        " at least one batch before calling compute()."
    )


#
# The smallest state
#


@flax.struct.dataclass
class EmptyState(State[MetricT]):
    """Carries nothing and computes `{}`."""

    @classmethod
    def empty(cls) -> Self:
        return cls()

    def merge(self, other: State) -> Self:
        return self

    def compute(self) -> dict[str, Any]:
        return {}


#
# When two metrics count as the same
#


def is_same_metric(left: Any, right: Any) -> bool:
    """Return whether states of the two may be merged: same class, equal options.

    Keys say where inputs come from, not what is computed, and are not compared.
    """
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if not dataclasses.is_dataclass(left):
        return is_equal(left, right)
    keys = get_annotated(type(left), kontext.Key)
    return all(
        _is_same_option(getattr(left, field.name), getattr(right, field.name))
        for field in dataclasses.fields(left)
        if field.compare and field.name not in keys
    )


def _is_same_option(left: Any, right: Any) -> bool:
    """Like `is_equal`, but metrics inside (of wrappers) may differ in their keys."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            _is_same_option(left[name], right[name]) for name in left
        )
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_is_same_option, left, right))
    if hasattr(left, "get_state_from_context"):
        return is_same_metric(left, right)
    return is_equal(left, right)


def is_equal(left: Any, right: Any) -> bool:
    """Compare as one bool, arrays too; tracers equal only themselves."""
    if left is right:
        return True
    if isinstance(left, jax.core.Tracer) or isinstance(right, jax.core.Tracer):
        return False
    if isinstance(left, np.ndarray | jax.Array) or isinstance(
        right, np.ndarray | jax.Array
    ):
        return np.array_equal(left, right)
    return bool(left == right)


#
# Trees of states
#


def merge_states(left: Any, right: Any) -> Any:
    """Merge two trees of states, state by state.

    States that can be merged inside `jit` are merged by one compiled call; those that
    collect on the host keep references to the arrays, whose copy starts in the
    background. Nothing waits for the device.

    Args:
      left: A tree of states, such as a dict; or `None`.
      right: Another one of the same structure; or `None`.

    Returns:
      The merged tree.

    Example:
      >>> import jax.numpy as jnp
      >>> from kauldron import metrics
      >>> accuracy = metrics.Accuracy()
      >>> merged = None
      >>> for label in (0, 1, 1):
      ...     logits, labels = jnp.array([[0.0, 1.0]]), jnp.array([[label]])
      ...     state = accuracy.get_state(logits=logits, labels=labels)
      ...     merged = merge_states(merged, {"accuracy": state})
      >>> round(float(merged["accuracy"].compute()), 3)
      0.667
    """
    if left is None or right is None:
        return right if left is None else left
    pairs, structure = paired_states(left, right)
    on_device = [_kind_merges_on_device(a, b) for a, b in pairs]
    merged = iter(_merge_on_device(list(itertools.compress(pairs, on_device))))
    return structure.unflatten(
        next(merged) if is_on_device else a.merge(b)
        for (a, b), is_on_device in zip(pairs, on_device)
    )


def paired_states(left: Any, right: Any) -> tuple[list[tuple[State, State]], Any]:
    """Return the states of two trees in pairs, and the structure of both."""
    lefts, structure = jax.tree.flatten(left, is_leaf=State.isinstance)
    rights, other_structure = jax.tree.flatten(right, is_leaf=State.isinstance)
    if structure != other_structure:
        raise ValueError(
            "Cannot merge trees of states of different structure:"
            f" {structure} and {other_structure}."
        )
    return list(zip(lefts, rights)), structure


def merges_on_device(left: State, right: State) -> bool:
    """Return whether such states merge inside `jit` without changing shapes.

    What grows by merging would be compiled again for each batch. Dtypes may change once:
    adding truth values gives a number.
    """
    try:
        once = jax.eval_shape(_merge, left, right)
        twice = jax.eval_shape(_merge, once, right)
    except Exception:  # the merge on the host shows what is really wrong
        return False
    return _shapes(left) == _shapes(once) and _dtypes(once) == _dtypes(twice)


def _merge(left: State, right: State) -> State:
    return left.merge(right)


def _shapes(state: State) -> Any:
    leaves, structure = jax.tree.flatten(state)
    return structure, [jnp.shape(leaf) for leaf in leaves]


def _dtypes(state: State) -> list[Any]:
    return [leaf.dtype for leaf in jax.tree.leaves(state)]


_kinds_on_device: dict[Any, bool] = {}


def _kind_merges_on_device(left: State, right: State) -> bool:
    """Remember `merges_on_device` for each kind of state."""
    if has_no_data(left) or has_no_data(right):
        return False  # nothing to add up, and nothing to learn about the kind
    kind = (type(left), type(right), left.parent)
    try:
        if kind not in _kinds_on_device:
            _kinds_on_device[kind] = merges_on_device(left, right)
        return _kinds_on_device[kind]
    except TypeError:  # a metric without a hash
        return False


def _merge_on_device(pairs: list[tuple[State, State]]) -> list[State]:
    """Merge pairs of states in one call."""
    if not pairs:
        return []
    try:
        return _merge_pairs(pairs)
    except Exception:  # merging one by one works, or shows which state is to blame
        return [a.merge(b) for a, b in pairs]


@jax.jit
def _merge_pairs(pairs: list[tuple[State, State]]) -> list[State]:
    return [a.merge(b) for a, b in pairs]


#
# Arrays collected over batches, and their way to the host
#


class Collected:
    """Pieces collected one after the other; immutable, and joined in constant time.

    A piece is an array or a tree of arrays. Joining two collections makes a node that
    points to both, so that collecting `n` batches costs `n` steps. `sample` is one of
    the pieces.
    """

    __slots__ = ("_items", "length", "sample")

    def __init__(self, items: Iterable[Any], *, length: int | None = None) -> None:
        """Join pieces and collections; `length` counts entries along the axis."""
        self._items = tuple(items)
        self.length = length
        last = self._items[-1] if self._items else None
        self.sample = last.sample if isinstance(last, Collected) else last

    def __iter__(self) -> Iterator[Any]:
        pending = list(reversed(self._items))
        while pending:
            item = pending.pop()
            if isinstance(item, Collected):
                pending.extend(reversed(item._items))
            else:
                yield item

    def __repr__(self) -> str:
        return f"Collected({len(list(self))} pieces)"

    def __reduce__(self) -> Any:
        return _make_collected, (tuple(self), self.length)


def _make_collected(pieces: Iterable[Any], length: int | None) -> Collected:
    return Collected(pieces, length=length)


jax.tree_util.register_pytree_with_keys(
    Collected,
    lambda collected: (
        [(jax.tree_util.SequenceKey(i), piece) for i, piece in enumerate(collected)],
        collected.length,
    ),
    lambda length, pieces: Collected(pieces, length=length),
)


def pieces_of(value: Any) -> list[Any]:
    """Return the pieces of a collection; one if the value is not collected yet."""
    return list(value) if isinstance(value, Collected) else [value]


def is_traced(tree: Any) -> bool:
    """Return whether any leaf is a tracer; constant time for collections."""
    if isinstance(tree, Collected):  # its pieces went into jit together, or none did
        tree = tree.sample
    if isinstance(tree, np.ndarray | jax.Array):
        return isinstance(tree, jax.core.Tracer)
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def check_not_traced(state: State, *merged: Any) -> None:
    """Refuse to merge collected values of a state inside a compiled function."""
    if any(map(is_traced, merged)):
        raise RuntimeError(
            f"{type(state).__qualname__} collects data on the host: its `merge` cannot"
            " be jit-compiled. Return the state from the jitted function and merge"
            " outside."
        )


def start_copy(value: Any) -> None:
    """Start copying a piece to the host without waiting; collections are under way."""
    if isinstance(value, Collected):
        return
    leaves = [value] if isinstance(value, jax.Array) else jax.tree.leaves(value)
    with jax.transfer_guard_device_to_host("allow"):  # asked for, and nobody waits
        for leaf in leaves:
            if isinstance(leaf, jax.Array):
                leaf.copy_to_host_async()


def to_host(tree: Any) -> Any:
    """Return every device array as numpy; tracers and the rest stay."""
    leaves, structure = jax.tree.flatten(tree)
    on_device = [
        isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
        for leaf in leaves
    ]
    if not any(on_device):
        return tree
    with jax.transfer_guard("allow"):
        for leaf, is_device_array in zip(leaves, on_device):
            if is_device_array:
                leaf.copy_to_host_async()
        return structure.unflatten(
            np.asarray(leaf) if is_device_array else leaf
            for leaf, is_device_array in zip(leaves, on_device)
        )
