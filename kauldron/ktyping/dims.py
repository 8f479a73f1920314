"""Read the dims of the active scope: `kt.dim`, `kt.shape`, `kt.get_current_scope`.

Only the function that owns a scope may ask, not what it calls: a frame owns the top
scope if it executes the code of the checked function, or a lambda or comprehension
written inside it.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
from collections.abc import ItemsView, Iterator, KeysView, Sequence
from types import CodeType, FrameType
from typing import Any

from kauldron.errors import ReadableKeyError
from kauldron.ktyping.errors import AmbiguousDimensionError, NoActiveScopeError
from kauldron.ktyping.scopes import STACK, ShapeScope, starred
from kauldron.ktyping.shapes.matching import SpecSource
from kauldron.ktyping.shapes.sizes import UNKNOWN_DIM as _UNKNOWN
from kauldron.ktyping.shapes.sizes import (
    Size,
    Sizes,
    State,
    UnknownDim,
    format_sizes,
    is_symbolic,
)
from kauldron.ktyping.shapes.solving import evaluate

_NAME = re.compile(r"([*+]?)([A-Za-z][A-Za-z0-9_]*)")
_UNSET = object()
_MAX_NAME_WIDTH = 8


class DimView:
    """The dims of a scope: `dim["h"]`, `dim["*b"]`, `"h" in dim`, `dim["n"] = 3`.

    Args:
      scope: Whose dims; by default those of the function that uses the view.
    """

    __slots__ = ("_scope",)

    def __init__(self, scope: ShapeScope | None = None):
        self._scope = scope

    def __getitem__(self, name: str) -> Any:
        """Return the size of a single axis, or the sizes of `*name` as a tuple.

        Raises:
          KeyError: If the dim is not known.
          AmbiguousDimensionError: If it has several possible values.
          ValueError: If the number of axes does not fit the way it is asked for.
        """
        state = self._active().state
        if len(state) == 1:  # by far the most frequent question
            sizes = state[0].get(name)
            if sizes is not None and len(sizes) == 1 and type(sizes[0]) is int:
                return sizes[0]
        return _read(state, name)

    def __contains__(self, name: object) -> bool:
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            return False
        return all(match[2] in dims for dims in self._active().state)

    def __setitem__(self, name: str, value: int | Sequence[int]) -> None:
        """Bind a dim by hand.

        Raises:
          ValueError: If it has another value already, or the value is of a wrong kind.
        """
        sigil, bare = _split(name)
        sizes = _given_sizes(sigil, name, value)
        scope = self._active()
        known = {dims[bare] for dims in scope.state if bare in dims}
        if known - {sizes}:
            shown = " | ".join(map(format_sizes, known))
            raise ValueError(f"Dimension {bare!r} already exists with value {shown}")
        if not all(bare in dims for dims in scope.state):
            scope.state = tuple({**dims, bare: sizes} for dims in scope.state)

    def __delitem__(self, name: str) -> None:
        raise TypeError("Deleting dimensions is not supported")

    def get(self, name: str, default: Any = None) -> Any:
        """Return the size, or `default` if the dim is not known."""
        scope = self._active()
        try:
            return _read(scope.state, name)
        except AmbiguousDimensionError:
            raise
        except KeyError:
            return default

    def __iter__(self) -> Iterator[str]:
        return iter(_certain(self._active().state))

    def __len__(self) -> int:
        return len(_certain(self._active().state))

    def keys(self) -> KeysView[str]:
        """Return the names of the unambiguous dims, without `*`."""
        return _certain(self._active().state).keys()

    def items(self) -> ItemsView[str, Any]:
        """Return names and sizes: an int for one axis, else a tuple."""
        return _certain(self._active().state).items()

    def __repr__(self) -> str:
        return _describe(self._active().state)

    def _active(self) -> ShapeScope:
        """Return the scope that the caller of the calling method means."""
        return self._scope or require_scope(sys._getframe(2))


dim = DimView()


def _split(name: Any) -> tuple[str, str]:
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ValueError(f"{name!r} is not the name of a dimension ('h', '*b' or '+b')")
    return match[1], match[2]


def _read(state: State, name: str) -> Any:
    sigil, bare = _split(name)
    values = _values(state, bare)
    if values == [_UNSET]:
        known = ", ".join(_all_names(state)) or "none"
        raise ReadableKeyError(f"Unknown dimension: {bare}. Known dimensions: {known}")
    if len(values) > 1:
        shown = " | ".join(_format(value) for value in values)
        raise AmbiguousDimensionError(f"Dimension {bare!r} is ambiguous: {shown}")
    sizes = tuple(_UNKNOWN if isinstance(x, UnknownDim) else x for x in values[0])
    if sigil == "+" and not sizes:
        raise ValueError(f"Dimension {name!r} is empty")
    if sigil:
        return sizes
    if len(sizes) != 1:
        raise ValueError(
            f"Dimension {bare!r} has {len(sizes)} axes: use dim['*{bare}'] for {sizes}"
        )
    return sizes[0]


def _values(state: State, name: str) -> list[Any]:
    """Return the distinct values of a dim, `_UNSET` for candidates that lack it."""
    return list(dict.fromkeys(dims.get(name, _UNSET) for dims in state))


def _all_names(state: State) -> list[str]:
    names = (name for dims in state for name in dims if not name.startswith("$"))
    return list(dict.fromkeys(names))


def _certain(state: State) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _all_names(state):
        values = _values(state, name)
        if len(values) == 1:
            found[name] = values[0][0] if len(values[0]) == 1 else values[0]
    return found


def _given_sizes(sigil: str, name: str, value: Any) -> Sizes:
    if not sigil:
        return (_given_size(name, value),)
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ValueError(f"Dimension {name!r} needs a tuple of sizes, got {value!r}")
    if sigil == "+" and not value:
        raise ValueError(f"Dimension {name!r} needs at least one size")
    return tuple(_given_size(name, size) for size in value)


def _given_size(name: str, size: Any) -> Size:
    if is_symbolic(size):
        return size
    try:
        number = operator.index(size)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"Dimension {name!r} needs a size (int >= 0), got {size!r}")
    return number


def _format(value: Any) -> str:
    return "unset" if value is _UNSET else format_sizes(value)


def _describe(state: State) -> str:
    certain: dict[str, str] = {}
    ambiguous: dict[str, str] = {}
    for name in _all_names(state):
        values = _values(state, name)
        texts = " | ".join(map(_format, values))
        is_single = all(value is _UNSET or len(value) == 1 for value in values)
        label = name if is_single else starred(name, ())
        (certain if len(values) == 1 else ambiguous)[label] = texts
    text = _block("dims", certain)
    return f"{text}\n{_block('ambiguous_dims', ambiguous)}" if ambiguous else text


def _block(title: str, lines: dict[str, str]) -> str:
    if not lines:
        return f"{title} = {{}}"
    width = min(_MAX_NAME_WIDTH, max(map(len, lines)))
    rows = [f"  {label:>{width}}: {value}" for label, value in lines.items()]
    return "\n".join([f"{title} = {{", *rows, "}"])


#
# Shapes
#


def shape(spec_str: str, *, nested_ok: bool = False) -> Sizes:
    """Return the sizes that a spec describes, from the dims in scope.

    >>> import numpy as np
    >>> from kauldron import ktyping as kt
    >>> @kt.typechecked
    ... def grow(x: kt.Float["*b n"]):
    ...     return kt.shape("*b n+1 -1")
    >>> grow(np.ones((4, 5, 6)))
    (4, 5, 7, -1)

    Args:
      spec_str: A shape spec of known dims.
      nested_ok: Whether the scope may belong to a function further up.

    Returns:
      Python ints (or symbolic sizes), so they are static under `jit`.

    Raises:
      ShapeError: If a dim is unknown, or several shapes are possible.
      NoActiveScopeError: If the caller has no scope.
    """
    return evaluate_in(spec_str, require_scope(sys._getframe(1), nested_ok))


def evaluate_in(spec: str, scope: ShapeScope, *, take_first: bool = False) -> Sizes:
    """Evaluate a spec in a given scope."""
    question = _asked(spec)
    state = scope.state
    answered_for, sizes = question.answer
    if answered_for is state:
        return sizes
    sizes = evaluate(question.spec.resolve(scope).spec, state, take_first=take_first)
    if question.spec.template is None and len(state) == 1:
        question.answer = state, sizes  # at once, as threads may ask the same
    return sizes


class _Question:
    """A spec and its last answer: calls with the same shapes share their state."""

    __slots__ = ("answer", "spec")

    def __init__(self, spec: str):
        self.spec = SpecSource(spec)
        self.answer: tuple[State | None, Sizes] = None, ()


_asked = functools.lru_cache(maxsize=1024)(_Question)


def get_current_scope(nested_ok: bool = False, stacklevel: int = 0) -> ShapeScope:
    """Return the scope of the calling function.

    Args:
      nested_ok: Whether the scope may belong to a function further up.
      stacklevel: How many more frames up the function that needs the scope is.

    Raises:
      NoActiveScopeError: If the caller has no scope.
    """
    return require_scope(sys._getframe(1 + stacklevel), nested_ok)


#
# Who may use a scope
#


_INLINE = {"<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}

# Frames whose locals hold these names own a scope, or are passed over.
_OWNER_MARK = "__ktyping_scope_counter__"
_IGNORE_MARK = "__ktyping_ignore_frame__"

_MAX_FRAMES = 10


def require_scope(frame: FrameType, nested_ok: bool = False) -> ShapeScope:
    """Return the top scope, if the function in `frame` owns it or `nested_ok`."""
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


def enclosing_scope(user: str) -> ShapeScope:
    """Return the top scope, for something that has no dims of its own."""
    scope = STACK.get()
    if scope is None:
        text = f"{user} uses the scope of its caller, but no scope is active."
        raise NoActiveScopeError(text)
    return scope


def _inline_codes(code: CodeType) -> frozenset[int]:
    """Return the ids of all lambdas and comprehensions written in a function."""
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
            lines.append(f"{mark} {current.f_code.co_name}: {_status(current, owners)}")
            shown += 1
        current = current.f_back
    name = frame.f_code.co_name
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
