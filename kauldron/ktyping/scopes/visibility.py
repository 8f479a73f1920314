"""Who may use a scope: the function that owns it, not what it calls.

A frame owns the top scope if it executes the code of the checked function, or a lambda
or comprehension written inside it.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from kauldron.ktyping.scopes.scope import ShapeScope
from kauldron.ktyping.scopes.stack import STACK

_INLINE = {"<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}

# Frames whose locals hold these names own a scope, or are passed over.
_OWNER_MARK = "__ktyping_scope_counter__"
_IGNORE_MARK = "__ktyping_ignore_frame__"

_MAX_FRAMES = 10


class NoActiveScopeError(RuntimeError):
    """Dims were asked for where no scope is active."""


def require_scope(frame: FrameType, nested_ok: bool = False) -> ShapeScope:
    """The top scope, if the function executing in `frame` owns it.

    Args:
      frame: The frame of the caller.
      nested_ok: Whether any scope on the stack will do.

    Raises:
      NoActiveScopeError: Saying which function lacks the decorator.
    """
    scope = STACK.get()
    if scope is not None:
        code = scope.code
        if nested_ok or frame.f_code is code:
            return scope
        if code is not None and id(frame.f_code) in _inline_codes(code):
            return scope
        if _owns_by_mark(frame) or _is_debugged():
            return scope
    raise NoActiveScopeError(_missing_scope_text(frame, scope))


def _inline_codes(code: CodeType) -> frozenset[int]:
    """The ids of the lambdas and comprehensions written in a function, at any depth."""
    try:
        return _remembered[id(code)][1]
    except KeyError:
        found: set[int] = set()
        for constant in code.co_consts:
            if isinstance(constant, CodeType) and constant.co_name in _INLINE:
                found |= {id(constant)} | _inline_codes(constant)
        _remembered[id(code)] = code, frozenset(found)
        return _remembered[id(code)][1]


# By id, because hashing a code object reads all of it; holding the code keeps its id.
_remembered: dict[int, tuple[CodeType, frozenset[int]]] = {}


def _owns_by_mark(frame: FrameType) -> bool:
    current: FrameType | None = frame
    while current is not None and _IGNORE_MARK in current.f_locals:
        current = current.f_back
    if current is None:
        return False
    scope = STACK.get()
    skipped = current is not frame
    owns_code = scope is not None and current.f_code is scope.code
    return bool(current.f_locals.get(_OWNER_MARK)) or (skipped and owns_code)


def _is_debugged() -> bool:
    trace = sys.gettrace()
    if trace is not None:
        module = getattr(trace, "__module__", None) or type(trace).__module__
        return not module.startswith("coverage")
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        return False
    return monitoring.get_tool(monitoring.DEBUGGER_ID) is not None


def _missing_scope_text(frame: FrameType, top: ShapeScope | None) -> str:
    lines = [
        "No active scope was found: this must be called from inside a function "
        "decorated with @typechecked, or from a `with typechecked():` block."
    ]
    owners = set()
    while top is not None:
        owners.add(top.code)
        top = top.parent
    current: FrameType | None = frame
    shown = 0
    while current is not None and shown < _MAX_FRAMES:
        if not _is_internal(current):
            mark = ">>" if current is frame else "  "
            lines.append(
                f"{mark} {_function_name(current)}: {_status(current, owners)}"
            )
            shown += 1
        current = current.f_back
    name = _function_name(frame)
    if name == "<module>":
        lines.append("Hint: use `with kt.typechecked():`, or pass nested_ok=True")
    else:
        lines.append(f"Hint: add @kt.typechecked to {name}(), or pass nested_ok=True")
    return "\n".join(lines)


def _status(frame: FrameType, owners: set[CodeType | None]) -> str:
    if _IGNORE_MARK in frame.f_locals:
        return "[ignored]"
    owns = frame.f_code in owners or frame.f_locals.get(_OWNER_MARK)
    return "ACTIVE SCOPE" if owns else "---"


def _function_name(frame: FrameType) -> str:
    return frame.f_code.co_name


def _is_internal(frame: FrameType) -> bool:
    """Frames of this package and of the tools that run programs say nothing."""
    module = frame.f_globals.get("__name__", "") or ""
    root = module.partition(".")[0]
    internal = module.startswith("kauldron.ktyping") or module == "kauldron.typing"
    return (
        internal
        or frame.f_code.co_filename.startswith("<kauldron.ktyping")
        or root in {"_pytest", "pluggy", "pytest", "runpy", "importlib", "IPython"}
    )
