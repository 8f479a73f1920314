"""Annotations: as written, what the names in their strings mean, what they contain."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kauldron.ktyping.array_type_meta import (
    is_array_type,
    is_pytree_type,
    is_shape_type,
)
from kauldron.ktyping.config import MISSING

_log = logging.getLogger("kauldron.ktyping")


def read_annotations(obj: Any) -> dict[str, Any]:
    """Return the own annotations of a function or class, strings as they are."""
    if sys.version_info >= (3, 14):
        import annotationlib  # pyright: ignore[reportMissingImports]

        return annotationlib.get_annotations(
            obj, format=annotationlib.Format.FORWARDREF
        )
    return inspect.get_annotations(obj)


def evaluated_annotations(obj: Any) -> dict[str, Any]:
    """Return the annotations that are not strings, without evaluating any."""
    if sys.version_info >= (3, 14):  # evaluated lazily, names may not exist yet
        return {}
    annotations = inspect.get_annotations(obj).items()
    return {name: value for name, value in annotations if not isinstance(value, str)}


def read_signature(function: Any) -> inspect.Signature:
    """Return the signature of a function, annotations left as they are."""
    if sys.version_info >= (3, 14):
        import annotationlib  # pyright: ignore[reportMissingImports]

        unevaluated = {"annotation_format": annotationlib.Format.FORWARDREF}
        return inspect.signature(function, **unevaluated)
    return inspect.signature(function)


class Names:
    """Resolves string annotations; each that cannot be resolved is logged once.

    Args:
      global_names: The module's globals.
      local_names: Makes the names that go before them (closure, class body).
      owner: Named in the log; '' to log nothing.
    """

    def __init__(
        self,
        global_names: Mapping[str, Any],
        local_names: Callable[[], Mapping[str, Any]] = dict,
        owner: str = "",
    ):
        self._globals = global_names
        self._locals = local_names
        self._owner = owner
        self._reported: set[str] = set()

    def evaluated(self, annotation: Any) -> Any:
        """Return the annotation itself, or what it stands for if it is a string."""
        if isinstance(annotation, str):
            return self.resolve(annotation)
        text = getattr(annotation, "__forward_arg__", None)
        if text is None:
            return annotation
        return self.resolve(text, getattr(annotation, "__forward_module__", None))

    def resolve(self, text: str, module: str | None = None) -> Any:
        """Return what a string annotation stands for, `Any` if that is unknown.

        `module` is where it was written, if that is known to be elsewhere.
        """
        # A leading `*` (from `*args: *Ts`) is only valid inside a tuple.
        source = f"({text},)[0]" if text.startswith("*") else f"({text})"
        names = {**vars(sys.modules[module])} if module in sys.modules else {}
        try:
            return eval(source, {**self._globals, **names, **self._locals()})
        except Exception as error:
            if self._owner and text not in self._reported:
                self._reported.add(text)
                _log.warning(
                    "Annotation %r of %s cannot be resolved and is not checked: %s: %s",
                    text,
                    self._owner,
                    type(error).__name__,
                    error,
                )
            return Any


def names_of_function(function: types.FunctionType, owner: str) -> Names:
    """Return the names that the string annotations of a function can use."""

    def local_names() -> dict[str, Any]:
        type_parameters = getattr(function, "__type_params__", ())
        return {
            **_class_namespace(function),
            **{parameter.__name__: parameter for parameter in type_parameters},
            **closure_variables(function),
        }

    return Names(function.__globals__, local_names, owner)


def names_of_class(cls: type, owner: str) -> Names:
    """Return the names that the string annotations of a class body can use."""
    module = sys.modules.get(cls.__module__)

    def local_names() -> dict[str, Any]:
        type_parameters = getattr(cls, "__type_params__", ())
        return {
            **{parameter.__name__: parameter for parameter in type_parameters},
            **vars(cls),
            cls.__name__: cls,
        }

    return Names(vars(module) if module else {}, local_names, owner)


def closure_variables(function: types.FunctionType) -> dict[str, Any]:
    """Return the variables of enclosing functions that a function uses."""
    values: dict[str, Any] = {}
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return values


def _class_namespace(function: types.FunctionType) -> Mapping[str, Any]:
    """Return the body of a method's class, if it can be found by name."""
    found: Any = None
    for part in function.__qualname__.split(".")[:-1]:
        found = (function.__globals__ if found is None else vars(found)).get(part)
        if not isinstance(found, type):
            return {}
    return {} if found is None else vars(found)


#
# What an annotation contains
#


def is_checked_dataclass(cls: type) -> bool:
    """Return whether constructing `cls` checks its fields."""
    return getattr(cls.__init__, "__ktyping_checks_fields__", False)


def contains_array_type(annotation: Any) -> bool:
    """Return whether an array type, or a `Shape` with a spec, is in an annotation."""
    return any(map(_has_spec, walk_annotation(annotation)))


def _has_spec(part: Any) -> bool:
    return is_array_type(part) or (
        is_shape_type(part) and part.shape_spec is not MISSING
    )


def contains_jaxtyping(annotation: Any) -> Any:
    """Return the first `jaxtyping` annotation inside, `None` if there is none."""
    for part in walk_annotation(annotation):
        if (
            isinstance(part, type)
            and type(part).__module__.split(".")[0] == "jaxtyping"
        ):
            return part
    return None


def walk_annotation(annotation: Any, into_classes: bool = True) -> Iterator[Any]:
    """Yield an annotation and all that it is made of.

    The fields of classes may need names that are not defined yet.
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
