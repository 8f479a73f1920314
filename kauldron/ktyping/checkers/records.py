"""Checkers of dataclasses, TypedDicts and named tuples: values with typed fields."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.config import MISSING
from kauldron.ktyping.scopes import CodeLocation, ShapeScope, Transparent, locate_class
from kauldron.ktyping.shapes.sizes import EMPTY_STATE, State
from kauldron.ktyping.values import format_annotation, format_value

if TYPE_CHECKING:
    from kauldron.ktyping.checkers.checker import Checker


Fields = dict[str, c.Checker]


class RecordChecker(c.Checker):
    """A class with typed fields.

    Args:
      cls: The class.
      compile_fields: Makes the checkers; called at the first check, because a class
        may contain itself.
      isolated: Whether the fields have a scope of their own.
    """

    kind = "class"
    step = "value of field {!r}"

    def __init__(self, cls: type, compile_fields: Callable[[], Fields], isolated: bool):
        super().__init__(cls)
        self.cls = cls
        self.isolated = isolated
        self._compile_fields = compile_fields

    @functools.cached_property
    def fields(self) -> Fields:
        return self._compile_fields()

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        if self.wrong_kind(value):
            return None
        values = self.values(value)
        if not self.isolated:
            after, failed = c.thread(self._parts(values), state, scope)
            return after if failed is None else None
        inner = self.open_scope(value, values)
        _, failed = c.check_all(self._parts(values), EMPTY_STATE, inner)
        return state if failed is None else None

    def explain(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        if reason := self.wrong_kind(value):
            return c.Failure(reason, state=state, scope=scope)
        values = self.values(value)
        check_fields = c.thread
        if self.isolated:
            scope, state = self.open_scope(value, values), EMPTY_STATE
            check_fields = c.check_all
        state, failed = check_fields(self._parts(values), state, scope)
        if failed is None:
            return super().explain(value, state, scope)
        name = self.checked_names(values)[failed]
        failure = self.fields[name].explain(values[name], state, scope)
        if not failure.fields:
            failure.fields = self._describe_fields(values, name)
        return failure.inside(self.step.format(name))

    def open_scope(self, value: Any, values: dict[str, Any]) -> ShapeScope:
        """Return a scope for the fields of one value."""
        return RecordScope(self, value, values)

    def checked_names(self, values: Mapping[str, Any]) -> list[str]:
        return [name for name in self.fields if name in values]

    def _parts(self, values: Mapping[str, Any]) -> list[tuple[c.Checker, Any]]:
        return [
            (self.fields[name], values[name]) for name in self.checked_names(values)
        ]

    def _describe_fields(self, values: Mapping[str, Any], failed: str) -> list[str]:
        location = locate_class(self.cls, f"{self.kind} {self.cls.__name__!r}")
        lines = [f"  Fields of {location}:"]
        for name, checker in self.fields.items():
            mark = ">" if name == failed else " "
            annotation = format_annotation(checker.annotation)
            shown = format_value(values[name]) if name in values else "<not set>"
            lines.append(f"  {mark} {name}: {annotation} = {shown}")
        return lines

    def values(self, value: Any) -> dict[str, Any]:
        """Return the fields that are set."""
        found = ((name, getattr(value, name, MISSING)) for name in self.fields)
        return {name: item for name, item in found if item is not MISSING}

    def wrong_kind(self, value: Any) -> str:
        """Return why `value` is not of this class at all, '' if it is."""
        if isinstance(value, self.cls):
            return ""
        return f"was of type {type(value).__name__} which is not {self.cls.__name__}"


class DataclassChecker(RecordChecker):
    """A dataclass."""

    kind = "dataclass"

    def values(self, value: Any) -> dict[str, Any]:
        """Return all fields that are set; f-strings need those without a checker too."""
        names = (field.name for field in dataclasses.fields(value))
        found = ((name, getattr(value, name, MISSING)) for name in names)
        return {name: item for name, item in found if item is not MISSING}


class NamedTupleChecker(RecordChecker):
    """A `NamedTuple`: its fields belong to the current scope."""

    kind = "NamedTuple"
    step = "attribute {!r}"

    def wrong_kind(self, value: Any) -> str:
        if isinstance(value, self.cls):
            return ""
        return f"is not an instance of {self.cls.__name__}"


class TypedDictChecker(RecordChecker):
    """A `TypedDict`: a dict with exactly these keys."""

    kind = "TypedDict"
    step = "value of key {!r}"

    def __init__(
        self,
        cls: type,
        compile_fields: Callable[[], Fields],
        isolated: bool,
        required_keys: Callable[[type], frozenset[str]],
    ):
        super().__init__(cls, compile_fields, isolated)
        self._required_keys = required_keys

    @functools.cached_property
    def required(self) -> frozenset[str]:
        return self._required_keys(self.cls)

    def values(self, value: Any) -> dict[str, Any]:
        return dict(value)

    def wrong_kind(self, value: Any) -> str:
        if not isinstance(value, Mapping):
            return "is not a dict"
        missing = [name for name in self.fields if name in self.required - value.keys()]
        if missing:
            return f"is missing required key(s): {', '.join(map(repr, missing))}"
        extra = [key for key in value if key not in self.fields]
        if extra:
            return f"has unexpected extra key(s): {', '.join(map(repr, extra))}"
        return ""


#
# The scope in which the fields of one value are checked
#


class RecordScope(ShapeScope):
    """Fields see each other and `self`, not the dims of the function."""

    __slots__ = ("checker", "value", "values")

    def __init__(self, checker: RecordChecker, value: Any, values: dict[str, Any]):
        self.state = EMPTY_STATE
        self._set_record(checker, value, values)

    def _set_record(
        self, checker: RecordChecker, value: Any, values: dict[str, Any]
    ) -> None:
        self.undetermined = self.settle = False
        self.token = None
        self.return_value = MISSING
        self.checker = checker
        self.value = value
        self.values = values

    @property
    def source(self) -> CodeLocation:
        cls = self.checker.cls
        return locate_class(cls, f"{self.checker.kind} {cls.__name__!r}")

    @property
    def code(self) -> None:
        return None

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            name: self.values[name]
            for name in self.checker.fields
            if name in self.values
        }

    @property
    def annotations(self) -> dict[str, Any]:
        return {name: field.annotation for name, field in self.checker.fields.items()}

    @property
    def default_args(self) -> frozenset[str]:
        return frozenset()

    @property
    def fstring_locals(self) -> dict[str, Any]:
        named = {key: item for key, item in self.values.items() if isinstance(key, str)}
        return {**named, "self": self.value}

    def _globals(self) -> Mapping[str, Any]:
        module = sys.modules.get(self.checker.cls.__module__)
        return vars(module) if module else {}

    def self_class(self) -> type:
        return type(self.value)

    def replay_parts(self) -> list[tuple[str, Checker, Any]]:
        return [
            (f"field {name!r}", field, self.values[name])
            for name, field in self.checker.fields.items()
            if name in self.values
        ]


class TransparentRecordScope(Transparent, RecordScope):
    """Fields that share the dims of the scope in which the object is made."""

    __slots__ = ("enclosing",)

    def __init__(
        self,
        checker: RecordChecker,
        value: Any,
        values: dict[str, Any],
        enclosing: ShapeScope,
    ):
        self.enclosing = enclosing
        self._set_record(checker, value, values)
