"""What a metric accumulates: a small pytree that merges, and computes at the end."""

from __future__ import annotations

import abc
import enum
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import flax.struct
import jax

from kauldron.metrics.collected import is_traced
from kauldron.metrics.metric_equality import is_same_metric

MetricT = TypeVar("MetricT")


class Empty(enum.Enum):
    """Type of `EMPTY`."""

    EMPTY = enum.auto()

    def __repr__(self) -> str:
        return "EMPTY"


EMPTY = Empty.EMPTY
"""Stands where no value is yet. For jax it is a node without leaves, like `None`."""

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
        """The state of no data: merging with it changes nothing."""

    @abc.abstractmethod
    def merge(self, other: Self) -> Self:
        """The state of the data of both.

        Raises:
          ValueError: If the two belong to different metrics.
        """

    def finalize(self) -> Self:
        """The same state on the host, as numpy arrays; it can still be merged."""
        return self

    @abc.abstractmethod
    def compute(self) -> Any:
        """The value. Finalizes the state first."""

    @staticmethod
    def isinstance(value: Any) -> bool:
        """Whether `value` is a state; for `jax.tree.map(..., is_leaf=...)`."""
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
        parent = common_parent(self, other)
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


def common_parent(state: State, other: Any) -> Any:
    """The metric of the merged state.

    Raises:
      TypeError: If `other` is not a state.
      ValueError: If the two states come from different metrics.
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
    """Whether some value of the state is still missing."""
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
