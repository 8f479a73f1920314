"""The scope in which the fields of one dataclass or TypedDict are checked."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.code_location import CodeLocation, locate_class
from kauldron.ktyping.missing import MISSING
from kauldron.ktyping.scopes.scope import ShapeScope, Transparent
from kauldron.ktyping.shapes.matching import EMPTY_STATE

if TYPE_CHECKING:
    from kauldron.ktyping.checkers.checker import Checker
    from kauldron.ktyping.checkers.record_checkers import RecordChecker


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
