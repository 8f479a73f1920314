"""Checkers of dataclasses, TypedDicts and named tuples: values with typed fields."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.checkers.annotations import names_of_class, read_annotations
from kauldron.ktyping.checkers.containers import Part, PartsChecker
from kauldron.ktyping.config import MISSING
from kauldron.ktyping.scopes import CodeLocation, ShapeScope
from kauldron.ktyping.shapes.sizes import EMPTY_STATE, State
from kauldron.ktyping.values import format_annotation, format_value

Fields = dict[str, c.Checker]


class RecordChecker(PartsChecker):
    """A class with typed fields.

    Args:
      cls: The class.
      compile_fields: Makes the checkers; called at the first check, because a class
        may contain itself.
      isolated: Whether the fields have a scope of their own.
    """

    kind = "class"
    words = "value of field"

    def __init__(self, cls: type, compile_fields: Callable[[], Fields], isolated: bool):
        super().__init__(cls)
        self.cls = cls
        self.isolated = isolated
        self._compile_fields = compile_fields

    @functools.cached_property
    def fields(self) -> Fields:
        return self._compile_fields()

    def problem(self, value: Any) -> str:
        if isinstance(value, self.cls):
            return ""
        return f"was of type {type(value).__name__} which is not {self.cls.__name__}"

    def parts(self, value: Any, /) -> Iterable[Part]:
        values = self.values(value)
        for name, field in self.fields.items():
            if name in values:
                yield field, values[name], self.words, name

    def values(self, value: Any) -> dict[str, Any]:
        """Return the fields that are set."""
        found = ((name, getattr(value, name, MISSING)) for name in self.fields)
        return {name: item for name, item in found if item is not MISSING}

    def enter(
        self, value: Any, state: State, scope: ShapeScope
    ) -> tuple[Any, State, ShapeScope]:
        if not self.isolated:
            return super().enter(value, state, scope)
        return c.check_all, EMPTY_STATE, RecordScope(self, value)

    def explain(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        failure = super().explain(value, state, scope)
        if failure.path and not failure.fields:
            failure.fields = self._describe_fields(value, failure.path[-1])
        return failure

    def _describe_fields(self, value: Any, failed: str) -> list[str]:
        lines = [f"  Fields of {self.location}:"]
        values = self.values(value)
        for name, field in self.fields.items():
            mark = ">" if failed == f"{self.words} {name!r}" else " "
            annotation = format_annotation(field.annotation)
            shown = format_value(values[name]) if name in values else "<not set>"
            lines.append(f"  {mark} {name}: {annotation} = {shown}")
        return lines

    @property
    def location(self) -> CodeLocation:
        """Where the class is defined; reads its source file, so only for messages."""
        cls = self.cls
        try:
            file = inspect.getsourcefile(cls) or "<unknown>"
            line = inspect.getsourcelines(cls)[1]
        except (OSError, TypeError):  # typed into a prompt, or built by a program
            module = sys.modules.get(cls.__module__)
            file, line = getattr(module, "__file__", None) or "<unknown>", 0
        description = f"{self.kind} {cls.__name__!r}"
        return CodeLocation(description, file, line, cls.__module__)


class DataclassChecker(RecordChecker):
    """A dataclass."""

    kind = "dataclass"


class NamedTupleChecker(RecordChecker):
    """A `NamedTuple`: its fields belong to the current scope."""

    kind = "NamedTuple"
    words = "attribute"

    def problem(self, value: Any) -> str:
        if isinstance(value, self.cls):
            return ""
        return f"is not an instance of {self.cls.__name__}"


class TypedDictChecker(RecordChecker):
    """A `TypedDict`: a dict with exactly these keys."""

    kind = "TypedDict"
    words = "value of key"

    @functools.cached_property
    def required(self) -> frozenset[str]:
        return _required_keys(self.cls)

    def values(self, value: Any) -> dict[str, Any]:
        return dict(value)

    def problem(self, value: Any) -> str:
        if not isinstance(value, Mapping):
            return "is not a dict"
        missing = [name for name in self.fields if name in self.required - value.keys()]
        if missing:
            return f"is missing required key(s): {', '.join(map(repr, missing))}"
        extra = [key for key in value if key not in self.fields]
        if extra:
            return f"has unexpected extra key(s): {', '.join(map(repr, extra))}"
        return ""


def _required_keys(typed_dict: Any) -> frozenset[str]:
    """Return the required keys; Python overlooks `NotRequired` inside a string."""
    required = set(typed_dict.__required_keys__)
    names = names_of_class(typed_dict, owner="")
    for key, annotation in read_annotations(typed_dict).items():
        origin = typing.get_origin(names.evaluated(annotation))
        if origin is typing.NotRequired:
            required.discard(key)
        elif origin is typing.Required:
            required.add(key)
    return frozenset(required)


#
# The scope in which the fields of one value are checked
#


class RecordScope(ShapeScope):
    """Fields see each other and `self`; the dims are their own, or those of a scope."""

    __slots__ = ("checker", "enclosing", "value")

    def __init__(
        self, checker: RecordChecker, value: Any, enclosing: ShapeScope | None = None
    ):
        super().__init__()
        self.checker = checker
        self.value = value
        self.enclosing = enclosing
        if enclosing is not None:
            self.state = enclosing.state

    @property
    def active_scope(self) -> ShapeScope:
        return self if self.enclosing is None else self.enclosing.active_scope

    @property
    def source(self) -> CodeLocation:
        return self.checker.location

    @property
    def arguments(self) -> dict[str, Any]:
        return {name: item for _, item, _, name in self.checker.parts(self.value)}

    @property
    def annotations(self) -> dict[str, Any]:
        return {name: field.annotation for name, field in self.checker.fields.items()}

    @property
    def fstring_locals(self) -> dict[str, Any]:
        return {**self.arguments, "self": self.value}

    def _globals(self) -> Mapping[str, Any]:
        module = sys.modules.get(self.checker.cls.__module__)
        return vars(module) if module else {}

    def self_class(self) -> type:
        return type(self.value)

    def replay_parts(self) -> list[tuple[str, c.Checker, Any]]:
        return [
            (f"field {name!r}", field, item)
            for field, item, _, name in self.checker.parts(self.value)
        ]
