"""What an annotation contains, at any depth."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

from kauldron.ktyping.annotation_names import names_of_class, read_annotations
from kauldron.ktyping.array_type_meta import is_array_type
from kauldron.ktyping.missing import MISSING
from kauldron.ktyping.pytree_type import is_pytree_type
from kauldron.ktyping.shape_type import is_shape_type


def is_checked_dataclass(cls: type) -> bool:
    """Whether constructing `cls` checks its fields."""
    return getattr(cls.__init__, "__ktyping_checks_fields__", False)


def contains_array_type(annotation: Any) -> bool:
    """Whether an array type, or a `Shape` with a spec, occurs in an annotation."""
    return any(map(_has_spec, walk_annotation(annotation)))


def _has_spec(part: Any) -> bool:
    return is_array_type(part) or (
        is_shape_type(part) and part.shape_spec is not MISSING
    )


def contains_jaxtyping(annotation: Any) -> Any:
    """The first genuine `jaxtyping` annotation inside, `None` if there is none."""
    for part in walk_annotation(annotation):
        if (
            isinstance(part, type)
            and type(part).__module__.split(".")[0] == "jaxtyping"
        ):
            return part
    return None


def walk_annotation(annotation: Any, into_classes: bool = True) -> Iterator[Any]:
    """An annotation and all that it is made of.

    Args:
      annotation: Where to start.
      into_classes: Whether to go on into the fields of dataclasses, named tuples and
        TypedDicts, which may need names that are not defined yet.
    """
    yield from _walk(annotation, into_classes, set())


def _walk(annotation: Any, into_classes: bool, visited: set[int]) -> Iterator[Any]:
    yield annotation
    if isinstance(annotation, type) and not typing.get_args(annotation):
        if id(annotation) in visited or is_array_type(annotation):
            return
        visited.add(id(annotation))
        parts = _field_types(annotation) if into_classes else ()
        if is_pytree_type(annotation):
            parts = (annotation.leaf_type,)
    else:
        parts = _parts(annotation)
    for part in parts:
        yield from _walk(part, into_classes, visited)


def _parts(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, (list, tuple)):
        return tuple(annotation)
    return (
        *typing.get_args(annotation),
        *getattr(annotation, "__constraints__", ()),
        *filter(None, (getattr(annotation, "__bound__", None),)),
        *filter(None, (getattr(annotation, "__supertype__", None),)),
    )


def _field_types(cls: Any) -> tuple[Any, ...]:
    is_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    if not (dataclasses.is_dataclass(cls) or typing.is_typeddict(cls) or is_tuple):
        return ()
    names = names_of_class(cls, owner="")
    return tuple(
        names.evaluated(annotation)
        for owner in cls.__mro__
        for annotation in read_annotations(owner).values()
    )
