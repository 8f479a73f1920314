"""`kt.dim`: the dims of the active scope, like a dict."""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import ItemsView, Iterator, KeysView, Sequence
from typing import Any

from kauldron.ktyping.errors import AmbiguousDimensionError
from kauldron.ktyping.scopes.dim_values import starred
from kauldron.ktyping.scopes.scope import ShapeScope
from kauldron.ktyping.scopes.visibility import require_scope
from kauldron.ktyping.shapes.matching import State
from kauldron.ktyping.shapes.sizes import UNKNOWN_DIM as _UNKNOWN
from kauldron.ktyping.shapes.sizes import (
    Size,
    Sizes,
    UnknownDim,
    format_sizes,
    is_symbolic,
)

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
        """The size of a single axis, or the sizes of `*name` as a tuple.

        Raises:
          KeyError: If the dim is not known.
          AmbiguousDimensionError: If it has several possible values.
          ValueError: If the number of axes does not fit the way it is asked for.
        """
        state = self._active(sys._getframe(1)).state
        if len(state) == 1:  # by far the most frequent question
            sizes = state[0].get(name)
            if sizes is not None and len(sizes) == 1 and type(sizes[0]) is int:
                return sizes[0]
        return _read(state, name)

    def __contains__(self, name: object) -> bool:
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            return False
        return all(match[2] in dims for dims in self._active(sys._getframe(1)).state)

    def __setitem__(self, name: str, value: int | Sequence[int]) -> None:
        """Bind a dim by hand.

        Raises:
          ValueError: If it has another value already, or the value is of a wrong kind.
        """
        sigil, bare = _split(name)
        sizes = _given_sizes(sigil, name, value)
        scope = self._active(sys._getframe(1))
        known = {dims[bare] for dims in scope.state if bare in dims}
        if known - {sizes}:
            shown = " | ".join(map(format_sizes, known))
            raise ValueError(f"Dimension {bare!r} already exists with value {shown}")
        if not all(bare in dims for dims in scope.state):
            scope.state = tuple({**dims, bare: sizes} for dims in scope.state)

    def __delitem__(self, name: str) -> None:
        raise TypeError("Deleting dimensions is not supported")

    def get(self, name: str, default: Any = None) -> Any:
        """The size, or `default` if the dim is not known."""
        scope = self._active(sys._getframe(1))
        try:
            return _read(scope.state, name)
        except AmbiguousDimensionError:
            raise
        except KeyError:
            return default

    def __iter__(self) -> Iterator[str]:
        return iter(_certain(self._active(sys._getframe(1)).state))

    def __len__(self) -> int:
        return len(_certain(self._active(sys._getframe(1)).state))

    def keys(self) -> KeysView[str]:
        """The names of the unambiguous dims, without `*`."""
        return _certain(self._active(sys._getframe(1)).state).keys()

    def items(self) -> ItemsView[str, Any]:
        """Names and sizes: an int for one axis, else a tuple."""
        return _certain(self._active(sys._getframe(1)).state).items()

    def __str__(self) -> str:
        return _describe(self._active(sys._getframe(1)).state)

    def __repr__(self) -> str:
        return _describe(self._active(sys._getframe(1)).state)

    def _active(self, frame: Any) -> ShapeScope:
        return self._scope or require_scope(frame)


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
        raise KeyError(f"Unknown dimension: {bare}. Known dimensions: {known}")
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
    """The distinct values of a dim, `_UNSET` for candidates that lack it."""
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
