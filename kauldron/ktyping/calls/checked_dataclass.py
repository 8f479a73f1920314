"""Check the fields of a dataclass whenever one is constructed."""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any

from kauldron.ktyping.annotation_names import (
    evaluated_annotations,
    names_of_class,
    read_annotations,
)
from kauldron.ktyping.calls import jaxtyping_policy
from kauldron.ktyping.calls.function_checkers import validate_annotation
from kauldron.ktyping.checkers.checker import check_all
from kauldron.ktyping.checkers.compiler import Compiler
from kauldron.ktyping.checkers.record_checkers import DataclassChecker
from kauldron.ktyping.code_location import locate_class
from kauldron.ktyping.config import VERSION, get_config
from kauldron.ktyping.error_report import FailedCheck
from kauldron.ktyping.errors import make_error
from kauldron.ktyping.rules import Rules
from kauldron.ktyping.scopes.record_scope import RecordScope, TransparentRecordScope
from kauldron.ktyping.scopes.stack import STACK
from kauldron.ktyping.scopes.visibility import NoActiveScopeError

_TREE_LIBRARIES = {"jax", "jaxlib", "optree"}


def check_dataclass(cls: Any, new_scope: bool, rules: Rules) -> Any:
    """Wrap `cls.__init__` so that the fields are checked after it; returns `cls`."""
    for name, annotation in evaluated_annotations(cls).items():
        validate_annotation(annotation, f"field {name!r} of {cls.__name__}")
    construct = cls.__init__
    plans: dict[type, _DataclassPlan] = {}

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        construct(self, *args, **kwargs)
        made = type(self)
        # A subclass with its own __init__ checks itself, or does not want checks.
        if made.__init__ is not __init__ or _is_rebuilt(sys._getframe(1)):
            return
        plan = plans.get(made)
        if plan is None:
            plan = plans[made] = _DataclassPlan(made, new_scope, rules)
        plan.check(self)

    vars(__init__)["__ktyping_checks_fields__"] = True
    cls.__init__ = __init__
    cls.__ktyping_wrapped__ = True
    return cls


def _is_rebuilt(caller: FrameType) -> bool:
    """Whether tree machinery makes the object, with leaves that need not be arrays."""
    module = caller.f_globals.get("__name__") or ""
    return (
        module.partition(".")[0] in _TREE_LIBRARIES
        or module == "flax.struct"
        or "unflatten" in caller.f_code.co_name
    )


class _DataclassPlan:
    """How instances of one class are checked."""

    def __init__(self, cls: Any, new_scope: bool, rules: Rules):
        self.cls = cls
        self.new_scope = new_scope
        self.rules = rules
        self.version = 0
        self.enabled = True
        self.checker: DataclassChecker | None = None

    def __reduce__(self) -> Any:
        """Checkers are made anew where the class is loaded."""
        return _DataclassPlan, (self.cls, self.new_scope, self.rules)

    def check(self, instance: Any) -> None:
        __tracebackhide__ = True
        if self.version != VERSION.number:
            self._refresh()
        if not self.enabled:
            return
        checker = self.checker
        assert checker is not None
        values = checker.values(instance)
        scope = self._open_scope(checker, instance, values)
        names = checker.checked_names(values)
        parts = [(checker.fields[name], values[name]) for name in names]
        state, failed = check_all(parts, scope.state, scope)
        if failed is not None:
            name = names[failed]
            field = checker.fields[name]
            raise make_error(
                FailedCheck("field", name, values[name], field, state, scope)
            )
        scope.state = state

    def _open_scope(
        self, checker: DataclassChecker, instance: Any, values: dict[str, Any]
    ) -> RecordScope:
        if self.new_scope:
            return RecordScope(checker, instance, values)
        enclosing = STACK.get()
        if enclosing is None:
            raise NoActiveScopeError(
                f"dataclass {self.cls.__name__!r} is @typechecked(new_scope=False): it "
                "uses the scope of its caller, but no scope is active."
            )
        return TransparentRecordScope(checker, instance, values, enclosing)

    def _refresh(self) -> None:
        version = VERSION.number
        config = get_config(self.cls.__module__)
        self.enabled = config.typechecking_enabled
        if self.enabled:
            self._report_jaxtyping()
            names = names_of_class(self.cls, f"class {self.cls.__name__!r}")
            self.checker = Compiler(self.rules, names).compile_dataclass(self.cls)
        self.version = version

    def _report_jaxtyping(self) -> None:
        if "jaxtyping" in sys.modules:
            location = locate_class(self.cls, f"dataclass {self.cls.__name__!r}")
            jaxtyping_policy.apply(read_annotations(self.cls), location)
