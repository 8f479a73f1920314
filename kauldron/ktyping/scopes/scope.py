"""Scopes: which dims are known while a function or a block runs.

A scope holds a state (candidates) that is replaced, never changed in place, because
states are shared between calls. Everything that only messages need is worked out when
it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, ClassVar

from kauldron.ktyping.code_location import NOWHERE, CodeLocation, locate_frame
from kauldron.ktyping.config import Config, get_config
from kauldron.ktyping.missing import MISSING
from kauldron.ktyping.scopes.dim_values import DimValues, as_state
from kauldron.ktyping.scopes.stack import STACK
from kauldron.ktyping.shapes.matching import EMPTY_STATE, State

if TYPE_CHECKING:
    from kauldron.ktyping.checkers.checker import Checker
    from kauldron.ktyping.scopes.dim_view import DimView


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
            self._source = locate_frame(frame, "typechecked context")
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
        from kauldron.ktyping.scopes.dim_view import DimView

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
        """The value of a name in an f-string part; `KeyError` if it is not visible."""
        names = self.fstring_locals
        if name in names:
            return names[name]
        return self._globals()[name]

    def _globals(self) -> Mapping[str, Any]:
        return self._frame.f_globals if self._frame is not None else {}

    def visible_names(self) -> list[str]:
        """What could have been used in an f-string part, without the globals."""
        return [name for name in self.fstring_locals if not name.startswith("__")]

    def self_class(self) -> type | None:
        """What `Self` means here."""
        return None

    def replay_parts(self) -> list[tuple[str, Checker, Any]]:
        """What was checked on entry, in order: (label, checker, value)."""
        return []

    def describe_binding(self, name: str, sizes: Any) -> str:
        """Who bound a dim: `by argument 'x'`."""
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
