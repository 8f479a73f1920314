"""Scopes: which dims are known while a function or a block runs.

A scope holds a state (candidates) that is replaced, never changed in place, because
states are shared between calls. Everything that only messages need is worked out when
it is asked for.
"""

from __future__ import annotations

import contextvars
import dataclasses
import sys
from collections.abc import Iterable, Mapping
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, ClassVar

from kauldron.immutabledict import ImmutableDict
from kauldron.ktyping.checkers.checker import Checker, check_all
from kauldron.ktyping.config import MISSING, VERSION, Config, get_config
from kauldron.ktyping.shapes.sizes import EMPTY_STATE, Dims, State, format_sizes, merged

if TYPE_CHECKING:
    from kauldron.ktyping.calls.plan import FunctionPlan, MemoEntry
    from kauldron.ktyping.dims import DimView


# Holds the top scope; its token remembers the one below.
STACK: contextvars.ContextVar[ShapeScope | None] = contextvars.ContextVar(
    "kauldron.ktyping.scopes", default=None
)


class ShapeScope:
    """The dims of a block; use it as a context manager to open a scope by hand.

    Args:
      source: Where the scope was opened; the `with` line by default.
      candidates: Assignments to start from, as mappings from name to tuple of sizes.
      arguments: Values to show in messages.
      annotations: Their annotations.
      fstring_locals: Names for f-string parts; the caller's variables by default.
      default_args: Those of `arguments` that were left at their default.
      stacklevel: How many more frames up the owner of the scope is.
    """

    __slots__ = (
        "_code",
        "_frame",
        "_given",
        "_source",
        "_stacklevel",
        "return_value",
        "settle",
        "state",
        "token",
        "undetermined",
    )

    is_checked: ClassVar[bool] = True  # whether the call was made with checks

    def __init__(
        self,
        source: CodeLocation | None = None,
        candidates: Iterable[Mapping[str, Any]] | None = None,
        arguments: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        fstring_locals: Mapping[str, Any] | None = None,
        default_args: Iterable[str] | None = None,
        stacklevel: int = 0,
    ):
        self.state = EMPTY_STATE if candidates is None else as_state(candidates)
        given = arguments, annotations, fstring_locals, default_args
        self._set_up(source, given, stacklevel)

    def _set_up(
        self, source: CodeLocation | None, given: tuple[Any, ...], stacklevel: int
    ) -> None:
        self.undetermined = False
        self.settle = False
        self.return_value = MISSING
        self.token: Any = None
        self._source = source
        self._given = given
        self._stacklevel = stacklevel
        self._frame: FrameType | None = None
        self._code: CodeType | None = None

    def __enter__(self) -> ShapeScope:
        frame = sys._getframe(1 + self._stacklevel)
        self.open_in(frame)
        return self

    def open_in(self, frame: FrameType) -> None:
        """Push the scope on behalf of the function that `frame` executes."""
        self._frame = frame
        self._code = frame.f_code
        if self._source is None:
            code, module = frame.f_code, frame.f_globals.get("__name__", "")
            self._source = CodeLocation(
                "typechecked context", code.co_filename, frame.f_lineno, module
            )
        self.token = STACK.set(self)

    def __exit__(self, *_: Any) -> None:
        STACK.reset(self.token)
        self._frame = self.token = None

    # What the scope knows.

    @property
    def active_scope(self) -> ShapeScope:
        """The scope that holds the dims: this one, unless it is transparent."""
        return self

    @property
    def candidates(self) -> frozenset[DimValues]:
        """The possible assignments. May be assigned from any iterable of mappings."""
        return frozenset(map(DimValues, self.state))

    @candidates.setter
    def candidates(self, candidates: Iterable[Mapping[str, Any]]) -> None:
        self.state = as_state(candidates)

    @property
    def dim(self) -> DimView:
        """The dims of this scope, also after it was closed."""
        from kauldron.ktyping.dims import DimView

        return DimView(self)

    @property
    def code(self) -> CodeType | None:
        """The code whose frames own this scope."""
        return self._code

    @property
    def parent(self) -> ShapeScope | None:
        """The scope below on the stack."""
        below = None if self.token is None else self.token.old_value
        return below if isinstance(below, ShapeScope) else None

    @property
    def config(self) -> Config:
        """The configuration that holds here."""
        return get_config(self.source.module_name)

    # Texts and values for messages.

    @property
    def source(self) -> CodeLocation:
        """Where the scope was opened."""
        return self._source or NOWHERE

    @property
    def arguments(self) -> dict[str, Any]:
        """The bound arguments, defaults included."""
        return dict(self._given[0] or {})

    @property
    def annotations(self) -> dict[str, Any]:
        """The annotations of the arguments."""
        return dict(self._given[1] or {})

    @property
    def default_args(self) -> frozenset[str]:
        """The names of the arguments that were left at their default."""
        return frozenset(self._given[3] or ())

    @property
    def return_annotation(self) -> Any:
        """The annotation of the result, `MISSING` if there is none."""
        return MISSING

    @property
    def fstring_locals(self) -> dict[str, Any]:
        """The names that f-string parts see before the globals."""
        if self._given[2] is not None:
            return dict(self._given[2])
        return dict(self._frame.f_locals) if self._frame is not None else {}

    def lookup(self, name: str) -> Any:
        """Return the value of a name in an f-string part, or raise `KeyError`."""
        names = self.fstring_locals
        if name in names:
            return names[name]
        return self._globals()[name]

    def _globals(self) -> Mapping[str, Any]:
        return self._frame.f_globals if self._frame is not None else {}

    def visible_names(self) -> list[str]:
        """Return what could have been used in an f-string part, without the globals."""
        return [name for name in self.fstring_locals if not name.startswith("__")]

    def self_class(self) -> type | None:
        """Return what `Self` means here."""
        return None

    def replay_parts(self) -> list[tuple[str, Checker, Any]]:
        """Return what was checked on entry, in order: (label, checker, value)."""
        return []

    def describe_binding(self, name: str, sizes: Any) -> str:
        """Return what bound a dim: `by argument 'x'`."""
        state = EMPTY_STATE
        for label, checker, value in self.replay_parts():
            after = checker.check(value, state, self)
            if after is None:
                continue
            if any(dims.get(name) == sizes for dims in after):
                return f"by {label}"
            state = after
        return "earlier in this scope"


class Transparent:
    """Reads and writes go to the nearest enclosing real scope."""

    __slots__ = ()
    enclosing: ShapeScope

    @property
    def active_scope(self) -> ShapeScope:
        return self.enclosing.active_scope

    @property
    def state(self) -> State:
        return self.active_scope.state

    @state.setter
    def state(self, state: State) -> None:
        self.active_scope.state = state


class TransparentScope(Transparent, ShapeScope):
    """A scope of its own in messages, with the dims of the enclosing one."""

    __slots__ = ("enclosing",)

    def __init__(self, enclosing: ShapeScope):
        self.enclosing = enclosing
        self._set_up(None, (None, None, None, None), 0)


#
# Calls
#


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
    """A call while checking is off: dims are inferred only when they are asked for."""

    __slots__ = ("_inferred",)
    is_checked = False

    def __init__(self, plan: FunctionPlan, args: tuple[Any, ...]):
        # The rest is set only if the dims are asked for: every call goes through here.
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
        self.undetermined = self.settle = False
        self._inferred = state

    def _infer(self) -> State:
        """Return what the arguments say; those that do not match say nothing."""
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
    """Return whether an argument is its default; that of `*args` is to be empty."""
    is_empty = type(value) in (tuple, dict) and not value
    return value is default or (
        is_empty and type(default) is type(value) and not default
    )


#
# Assignments of dims
#


DimValues = ImmutableDict


def as_state(candidates: Any) -> State:
    """Return a state from any iterable of mappings; the empty one if there are none."""
    plain = ({**dims} for dims in candidates)
    return merged(plain) or EMPTY_STATE


def format_dims(dims: Dims) -> str:
    """`{*b: (6, 4), d: 10}`"""
    items = (
        f"{starred(name, sizes)}: {format_sizes(sizes)}"
        for name, sizes in dims.items()
        if not name.startswith("$")
    )
    return f"{{{', '.join(items)}}}"


def starred(name: str, sizes: Any) -> str:
    """Return the name, with a `*` unless it stands for exactly one axis."""
    return name if len(sizes) == 1 else f"*{name}"


#
# Where a scope was opened
#


@dataclasses.dataclass(frozen=True)
class CodeLocation:
    """What is defined where.

    Attributes:
      description: `function 'f'`, `dataclass 'D'`, `typechecked context`, ...
      file: The source file.
      line: The first line of the definition, decorators included.
      module_name: The module; decides which configuration applies.
      qualified_name: `Encoder.__call__` for a method, else ''.
    """

    description: str
    file: str
    line: int
    module_name: str = ""
    qualified_name: str = ""

    def __str__(self) -> str:
        name = f" ({self.qualified_name})" if self.qualified_name else ""
        return f"{self.description}{name} at {self.file}:{self.line}"


NOWHERE = CodeLocation("check without a scope", "<unknown>", 0)
