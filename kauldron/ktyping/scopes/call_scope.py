"""The scopes of checked calls: small, because one is made for every call."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.checkers.checker import Checker, check_all
from kauldron.ktyping.code_location import CodeLocation
from kauldron.ktyping.config import VERSION, Config
from kauldron.ktyping.missing import MISSING
from kauldron.ktyping.scopes.scope import ShapeScope, Transparent
from kauldron.ktyping.shapes.matching import EMPTY_STATE, State

if TYPE_CHECKING:
    from kauldron.ktyping.calls.function_plan import FunctionPlan
    from kauldron.ktyping.calls.memo import MemoEntry


class CallScope(ShapeScope):
    """The scope of one call of a checked function."""

    __slots__ = ("args", "memo_entry", "plan")

    def __init__(
        self,
        plan: FunctionPlan,
        args: tuple[Any, ...],
        state: State,
        memo_entry: MemoEntry | None,
    ):
        self.plan = plan
        self.args = args
        self.state = state
        self.memo_entry = memo_entry
        self.undetermined = False
        self.settle = False
        self.token = None
        self.return_value = MISSING

    @property
    def config(self) -> Config:
        is_current = self.plan.version == VERSION.number
        return self.plan.config if is_current else super().config

    @property
    def code(self) -> CodeType:
        return self.plan.code

    @property
    def source(self) -> CodeLocation:
        return self.plan.location

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(zip(self.plan.names, self.args))

    @property
    def annotations(self) -> dict[str, Any]:
        return self.plan.annotations

    @property
    def default_args(self) -> frozenset[str]:
        defaults = self.plan.defaults
        return frozenset(
            name
            for name, value in self.arguments.items()
            if name in defaults and _is_untouched(value, defaults[name])
        )

    @property
    def return_annotation(self) -> Any:
        return self.plan.return_annotation

    @property
    def fstring_locals(self) -> dict[str, Any]:
        return {**self.plan.closure_variables(), **self.arguments}

    def _globals(self) -> Mapping[str, Any]:
        return self.plan.globals

    def self_class(self) -> type | None:
        if not self.args:
            return None
        first = self.args[0]
        return first if isinstance(first, type) else type(first)

    def replay_parts(self) -> list[tuple[str, Checker, Any]]:
        return [
            (f"argument {name!r}", checker, value)
            for name, checker, value in self.plan.checked_arguments(self.args)
        ]


class TransparentCallScope(Transparent, CallScope):
    """A call of a `new_scope=False` function: the dims are those of its caller."""

    __slots__ = ("enclosing",)

    def __init__(
        self, plan: FunctionPlan, args: tuple[Any, ...], enclosing: ShapeScope
    ):
        self.enclosing = enclosing
        super().__init__(plan, args, self.state, None)


class UncheckedCallScope(CallScope):
    """A call while checking is off: dims are inferred only if somebody asks."""

    __slots__ = ("_inferred",)
    is_checked = False

    def __init__(self, plan: FunctionPlan, args: tuple[Any, ...]):
        self.plan = plan
        self.args = args
        self.memo_entry = None
        self.return_value = MISSING
        self._inferred: State | None = None

    @property
    def state(self) -> State:
        if self._inferred is None:
            self._inferred = self._infer()
        return self._inferred

    @state.setter
    def state(self, state: State) -> None:
        self._inferred = state

    def _infer(self) -> State:
        """What the arguments say; those that do not match say nothing."""
        self.undetermined = self.settle = False
        parts = [(checker, value) for _, checker, value in self.replay_parts()]
        state = EMPTY_STATE
        while parts:
            after, failed = check_all(parts, state, self)
            if failed is None:
                return after
            del parts[failed]
        return state


def _is_untouched(value: Any, default: Any) -> bool:
    """Whether an argument is its default; without extra arguments `*args` is empty."""
    is_empty = type(value) in (tuple, dict) and not value
    return value is default or (
        is_empty and type(default) is type(value) and not default
    )
