"""States whose merge rule is declared field by field."""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
import re
import types
import typing
from typing import Any, ClassVar, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.errors import error_prefix
from kauldron.metrics.state import (
    EMPTY,
    Collected,
    MetricT,
    State,
    check_not_traced,
    is_equal,
    is_traced,
    pieces_of,
    start_copy,
    to_host,
)

# Marks in the metadata of fields.
_MERGER = "kauldron_merger"
_UNMARKED = "kauldron_unmarked"


#
# Kinds of fields
#


def sum_field(**kwargs: Any) -> Any:
    """Return a field (array or tree of arrays) that is added up."""
    return _data_field(SUM, kwargs)


def min_field(**kwargs: Any) -> Any:
    """Return a field of which the element-wise minimum is kept."""
    return _data_field(MINIMUM, kwargs)


def max_field(**kwargs: Any) -> Any:
    """Return a field of which the element-wise maximum is kept."""
    return _data_field(MAXIMUM, kwargs)


def concat_field(*, axis: int = 0, **kwargs: Any) -> Any:
    """Return a field that is collected on the host and concatenated at the end.

    Args:
      axis: Axis along which to concatenate. Scalars become arrays of shape `(1,)`.
      **kwargs: For `dataclasses.field`.
    """
    merger = Concatenate(verb="concatenate", axis=axis)
    return _data_field(merger, kwargs)


def truncate_field(*, num_field: str, axis: int = 0, **kwargs: Any) -> Any:
    """Like `concat_field`, but only the first entries are kept.

    Args:
      num_field: Path from the state to the number of entries, such as `"keep"` or
        `"parent.num_images"`. A number of `None` keeps everything.
      axis: Axis along which entries are counted.
      **kwargs: For `dataclasses.field`.
    """
    merger = Truncate(verb="concatenate (& truncate)", axis=axis, num_field=num_field)
    return _data_field(merger, kwargs)


def state_field(**kwargs: Any) -> Any:
    """Return a field that is itself a state."""
    return _data_field(MERGE_STATES, kwargs)


def static_field(default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """Return a field that is not data: states with other values do not merge."""
    metadata = {**kwargs.pop("metadata", {}), "pytree_node": False}
    if default is not dataclasses.MISSING:
        kwargs["default"] = default
    return dataclasses.field(metadata=metadata, **kwargs)


def _data_field(merger: Merger, kwargs: dict[str, Any]) -> Any:
    metadata = {**kwargs.pop("metadata", {}), "pytree_node": True, _MERGER: merger}
    return dataclasses.field(metadata=metadata, **kwargs)


#
# The state
#


@flax.struct.dataclass
class AutoState(State[MetricT]):
    """State whose merge rule is declared per field.

    Data fields are declared with `sum_field`, `min_field`, `max_field`,
    `concat_field`, `truncate_field` or `state_field`. Every other field is static: it
    is not data for jax, and merging states in which it differs is an error.

    States of sums, minima and maxima merge inside `jit`. Those that collect
    (`concat_field`, `truncate_field`) merge on the host, without waiting for the
    device.

    Example:
      >>> @flax.struct.dataclass(kw_only=True)
      ... class ErrorState(AutoState):
      ...     squares: Any = sum_field()
      ...     worst: Any = max_field()
      ...     count: int = 1
      >>> first = ErrorState(squares=np.float32(4), worst=np.float32(2))
      >>> second = ErrorState(squares=np.float32(9), worst=np.float32(3))
      >>> first.merge(second).compute()
      namespace(squares=np.float32(13.0), worst=np.float32(3.0))
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Before the decorator looks: flax takes a field without a mark for data.
        for name, annotation in inspect.get_annotations(cls).items():
            if not _is_class_variable(annotation):
                _mark_static(cls, name)

    def __post_init__(self) -> None:
        for name in _unmarked_fields(type(self)):
            if _holds_arrays(getattr(self, name)):
                raise TypeError(
                    f"Field {name!r} of {type(self).__qualname__} is static but"
                    " got an array. Declare how it merges: use sum_field, min_field,"
                    " max_field, concat_field or truncate_field."
                )

    @classmethod
    def empty(cls) -> Self:
        return cls(**{f.name: EMPTY for f in dataclasses.fields(cls) if f.init})

    def merge(self, other: Self) -> Self:
        if type(other) is not type(self):
            raise TypeError(
                f"Cannot merge {type(self).__qualname__} with"
                f" {type(other).__qualname__}."
            )
        # Static fields first: they tell how many entries a truncated field keeps.
        changes = self._merge_static(other)
        merged = self.replace(**changes) if changes else self
        data = {
            name: self._merge_data(name, merger, other, merged)
            for name, merger in _data_fields(type(self))
        }
        return merged.replace(**data)

    def finalize(self) -> Self:
        return self.replace(
            **{
                name: self._finalize_data(name, merger)
                for name, merger in _data_fields(type(self))
            }
        )

    def compute(self) -> Any:
        """Return the data fields as a namespace, on the host; inner states computed."""
        return types.SimpleNamespace(
            **{
                name: _value_of(getattr(self, name))
                for name, _ in _data_fields(type(self))
            }
        )

    def _merge_static(self, other: Self) -> dict[str, Any]:
        """Return the static fields that come from the other state."""
        changes = {}
        for name in _static_fields(type(self)):
            left, right = getattr(self, name), getattr(other, name)
            if left is EMPTY:
                changes[name] = right
            elif right is not EMPTY and not is_equal(left, right):
                raise ValueError(
                    f"Cannot merge states of {type(self).__qualname__}: the static"
                    f" field {name!r} is {left!r} in one and {right!r} in the other."
                )
        return changes

    def _merge_data(self, name: str, merger: Merger, other: Self, merged: Self) -> Any:
        left, right = getattr(self, name), getattr(other, name)
        if left is EMPTY or right is EMPTY:
            return right if left is EMPTY else left
        if left is None and right is None:
            return None
        if left is None or right is None:
            raise ValueError(
                f"Cannot {merger.verb} None with a value: {self._where(name)}."
            )
        try:  # enters no context manager: this runs for each batch
            return merger.merge(left, right, merged)
        except Exception:
            with error_prefix(f"Cannot {merger.verb} {self._where(name)}: "):
                raise

    def _finalize_data(self, name: str, merger: Merger) -> Any:
        value = getattr(self, name)
        if value is EMPTY or value is None:
            return value
        with error_prefix(lambda: f"Cannot {merger.verb} {self._where(name)}: "):
            return merger.finalize(value, self)

    def _where(self, name: str) -> str:
        return f"field {name!r} of {type(self).__qualname__}"


@functools.cache
def _data_fields(cls: type) -> tuple[tuple[str, Merger], ...]:
    """Return the names of the data fields, and how each is merged."""
    return tuple(
        (field.name, field.metadata[_MERGER])
        for field in dataclasses.fields(cls)
        if _MERGER in field.metadata
    )


@functools.cache
def _static_fields(cls: type) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in dataclasses.fields(cls)
        if _MERGER not in field.metadata and field.init and field.name != "parent"
    )


@functools.cache
def _unmarked_fields(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls) if _UNMARKED in f.metadata)


def _mark_static(cls: type, name: str) -> None:
    """Turn an annotated field that no helper made into a static one."""
    value = cls.__dict__.get(name, dataclasses.MISSING)
    if not isinstance(value, dataclasses.Field):
        setattr(cls, name, static_field(value, metadata={_UNMARKED: True}))
        return
    metadata = value.metadata
    if _MERGER in metadata or metadata.get("pytree_node") is False:
        return
    if metadata.get("pytree_node"):
        raise TypeError(
            f"Field {name!r} of {cls.__qualname__} is data (`pytree_node=True`) but does"
            " not say how it merges: use sum_field, min_field, max_field, concat_field,"
            " truncate_field or state_field."
        )
    value.metadata = types.MappingProxyType(
        {**metadata, "pytree_node": False, _UNMARKED: True}
    )


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return re.match(r"(\w+\.)*(ClassVar|InitVar)\b", annotation) is not None
    is_class_var = annotation is ClassVar or typing.get_origin(annotation) is ClassVar
    return is_class_var or isinstance(annotation, dataclasses.InitVar)


def _holds_arrays(value: Any) -> bool:
    if isinstance(value, str | int | float | None):
        return False
    return any(
        isinstance(leaf, np.ndarray | jax.Array) for leaf in jax.tree.leaves(value)
    )


def _value_of(value: Any) -> Any:
    if value is EMPTY:
        return None
    return value.compute() if isinstance(value, State) else value


#
# How one field is merged, and brought to the host
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class Merger(abc.ABC):
    """The rule of a field. Values are neither `EMPTY` nor `None` here."""

    verb: str

    @abc.abstractmethod
    def merge(self, left: Any, right: Any, state: State) -> Any:
        """Merge two values; `state` holds the merged static fields and parent."""

    def finalize(self, value: Any, state: State) -> Any:
        """Return the value on the host."""
        return to_host(value)


#
# Element by element: sum, minimum, maximum
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elementwise(Merger):
    """Leaf-wise function of numpy and `jax.numpy`; traceable."""

    function: str

    def merge(self, left: Any, right: Any, state: State) -> Any:
        _check_same_structure(left, right)
        return jax.tree.map(self._merge_leaves, left, right)

    def _merge_leaves(self, left: Any, right: Any) -> Any:
        if np.shape(left) != np.shape(right):
            raise ValueError(
                f"shapes {np.shape(left)} and {np.shape(right)} are different"
            )
        is_on_device = isinstance(left, jax.Array) or isinstance(right, jax.Array)
        function = getattr(jnp if is_on_device else np, self.function)
        if self.function == "add":
            left, right = _widen(left), _widen(right)
        return function(left, right)


def _widen(leaf: Any) -> Any:
    """Widen half floats to float32 and bools to int32: neither can count far."""
    dtype = jnp.result_type(leaf)
    if np.issubdtype(dtype, np.bool_):
        return _astype(leaf, np.int32)
    if jnp.issubdtype(dtype, np.floating) and dtype.itemsize < 4:
        return _astype(leaf, np.float32)
    return leaf


def _astype(leaf: Any, dtype: Any) -> Any:
    return leaf.astype(dtype) if hasattr(leaf, "astype") else dtype(leaf)


#
# Collected on the host: concatenation, truncation
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class Concatenate(Merger):
    """Pieces are kept and concatenated at the end."""

    axis: int = 0

    def merge(self, left: Any, right: Any, state: State) -> Any:
        check_not_traced(state, left, right)
        start_copy(left)
        start_copy(right)
        return Collected((left, right))

    def finalize(self, value: Any, state: State) -> Any:
        pieces = to_host(pieces_of(value))
        for piece in pieces[1:]:
            _check_same_structure(pieces[0], piece)
        return jax.tree.map(lambda *leaves: self._join(leaves), *pieces)

    def _join(self, leaves: tuple[Any, ...]) -> Any:
        xp = jnp if is_traced(leaves) else np
        arrays = [x if np.ndim(x) else xp.reshape(x, (1,)) for x in leaves]
        if len(arrays) == 1:
            return xp.asarray(arrays[0])
        return xp.concatenate(arrays, axis=self.axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truncate(Concatenate):
    """Like `Concatenate`, but only the first entries are kept."""

    num_field: str

    def merge(self, left: Any, right: Any, state: State) -> Any:
        check_not_traced(state, left, right)
        limit = self._limit(state)
        if limit is not None and self._length(left) >= limit:
            return left  # full: the other side need not even travel to the host
        start_copy(left)
        start_copy(right)
        length = self._length(left) + self._length(right)
        return Collected((left, right), length=length)

    def finalize(self, value: Any, state: State) -> Any:
        limit = self._limit(state)
        joined = super().finalize(self._needed(value, limit), state)
        if limit is None:
            return joined
        return jax.tree.map(lambda leaf: self._first(leaf, limit), joined)

    def _needed(self, value: Any, limit: int | None) -> Collected:
        """Return the leading pieces that reach the limit."""
        needed, length = [], 0
        for piece in pieces_of(value):
            needed.append(piece)
            length += self._length(piece)
            if limit is not None and length >= limit:
                break
        return Collected(needed)

    def _length(self, value: Any) -> int:
        """Return the number of entries along the axis, from the shapes."""
        if isinstance(value, Collected) and value.length is not None:
            return value.length
        leaves = [x for piece in pieces_of(value) for x in jax.tree.leaves(piece)[:1]]
        return sum(np.shape(x)[self.axis] if np.ndim(x) else 1 for x in leaves)

    def _first(self, leaf: Any, limit: int) -> Any:
        index = [slice(None)] * np.ndim(leaf)
        index[self.axis] = slice(limit)
        return leaf[tuple(index)]

    def _limit(self, state: State) -> int | None:
        limit = kontext.get_by_path(state, self.num_field)
        if limit is not None and limit < 0:
            raise ValueError(f"{self.num_field!r} is {limit}, but must be at least 0")
        return limit


#
# A state inside the state
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeStates(Merger):
    """The field is a state itself."""

    def merge(self, left: Any, right: Any, state: State) -> Any:
        return left.merge(right)

    def finalize(self, value: Any, state: State) -> Any:
        return value.finalize()


def _check_same_structure(left: Any, right: Any) -> None:
    structures = jax.tree.structure(left), jax.tree.structure(right)
    if structures[0] != structures[1]:
        raise ValueError(
            f"the tree structures {structures[0]} and {structures[1]} are different"
        )


SUM = Elementwise(verb="sum", function="add")
MINIMUM = Elementwise(verb="take the minimum of", function="minimum")
MAXIMUM = Elementwise(verb="take the maximum of", function="maximum")
MERGE_STATES = MergeStates(verb="merge")
