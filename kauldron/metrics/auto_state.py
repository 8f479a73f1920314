"""States whose merge rule is declared field by field."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
import typing
from typing import Any, ClassVar, Self

import flax.struct
import jax
import numpy as np

from kauldron.metrics import field_mergers
from kauldron.metrics.metric_equality import is_equal
from kauldron.metrics.state import EMPTY, MetricT, State, common_parent
from kauldron.utils.error_context import error_prefix

# Marks in the metadata of fields.
_MERGER = "kauldron_merger"
_UNMARKED = "kauldron_unmarked"


#
# Kinds of fields
#


def sum_field(**kwargs: Any) -> Any:
    """A field (array or tree of arrays) that is added up."""
    return _data_field(field_mergers.SUM, kwargs)


def min_field(**kwargs: Any) -> Any:
    """A field of which the element-wise minimum is kept."""
    return _data_field(field_mergers.MINIMUM, kwargs)


def max_field(**kwargs: Any) -> Any:
    """A field of which the element-wise maximum is kept."""
    return _data_field(field_mergers.MAXIMUM, kwargs)


def concat_field(*, axis: int = 0, **kwargs: Any) -> Any:
    """A field that is collected on the host and concatenated at the end.

    Args:
      axis: Axis along which to concatenate. Scalars become arrays of shape `(1,)`.
      **kwargs: For `dataclasses.field`.
    """
    merger = field_mergers.Concatenate(verb="concatenate", axis=axis)
    return _data_field(merger, kwargs)


def truncate_field(*, num_field: str, axis: int = 0, **kwargs: Any) -> Any:
    """Like `concat_field`, but only the first entries are kept.

    Args:
      num_field: Path from the state to the number of entries, such as `"keep"` or
        `"parent.num_images"`. A number of `None` keeps everything.
      axis: Axis along which entries are counted.
      **kwargs: For `dataclasses.field`.
    """
    merger = field_mergers.Truncate(
        verb="concatenate (& truncate)", axis=axis, num_field=num_field
    )
    return _data_field(merger, kwargs)


def state_field(**kwargs: Any) -> Any:
    """A field that is itself a state."""
    return _data_field(field_mergers.MERGE_STATES, kwargs)


def static_field(default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """A field that is not data: it must be equal in the states that are merged."""
    metadata = {**kwargs.pop("metadata", {}), "pytree_node": False}
    if default is not dataclasses.MISSING:
        kwargs["default"] = default
    return dataclasses.field(metadata=metadata, **kwargs)


def _data_field(merger: field_mergers.Merger, kwargs: dict[str, Any]) -> Any:
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
    is no data for jax, and merging states in which it differs is an error.

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
        """The data fields as a namespace, on the host; inner states computed."""
        return types.SimpleNamespace(
            **{
                name: _value_of(getattr(self, name))
                for name, _ in _data_fields(type(self))
            }
        )

    def _merge_static(self, other: Self) -> dict[str, Any]:
        """Parent and static fields that come from the other state."""
        changes = {}
        if self.parent is not other.parent:
            changes["parent"] = common_parent(self, other)
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

    def _merge_data(
        self, name: str, merger: field_mergers.Merger, other: Self, merged: Self
    ) -> Any:
        left, right = getattr(self, name), getattr(other, name)
        if left is EMPTY or right is EMPTY:
            return right if left is EMPTY else left
        if left is None and right is None:
            return None
        if left is None or right is None:
            raise ValueError(
                f"Cannot {merger.verb} None with a value: {self._where(name)}."
            )
        try:
            return merger.merge(left, right, merged)
        except Exception:
            with error_prefix(f"Cannot {merger.verb} {self._where(name)}: "):
                raise

    def _finalize_data(self, name: str, merger: field_mergers.Merger) -> Any:
        value = getattr(self, name)
        if value is EMPTY or value is None:
            return value
        try:
            return merger.finalize(value, self)
        except Exception:
            with error_prefix(f"Cannot {merger.verb} {self._where(name)}: "):
                raise

    def _where(self, name: str) -> str:
        return f"field {name!r} of {type(self).__qualname__}"


@functools.cache
def _data_fields(cls: type) -> tuple[tuple[str, field_mergers.Merger], ...]:
    """Names of the data fields, and how each is merged."""
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
