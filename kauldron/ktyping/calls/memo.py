"""Remember which calls were fine: the same classes, dtypes and shapes are fine again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.shapes.matching import State

_MAX_ENTRIES = 128

_KEY_PARTS = {
    c.UNCHECKED: "",
    c.BY_CLASS: "type(a{0}), ",
    c.BY_ARRAY: "type(a{0}), a{0}.dtype, a{0}.shape, ",
    c.BY_ANY: "type(a{0}), getattr(a{0}, 'dtype', None), getattr(a{0}, 'shape', None), ",
}


class MemoEntry:
    """The state after checking certain arguments, and results that fit there."""

    __slots__ = ("results", "state")

    def __init__(self, state: State):
        self.state = state
        self.results: set[Any] = set()


@functools.lru_cache(maxsize=1024)
def key_function(kinds: tuple[str, ...]) -> Callable[..., Any]:
    """A function from arguments to what decides about them.

    >>> key_function(("c", "-"))(3, "unchecked")
    (<class 'int'>,)
    """
    names = ", ".join(f"a{i}" for i in range(len(kinds)))
    parts = "".join(_KEY_PARTS[kind].format(i) for i, kind in enumerate(kinds))
    return eval(f"lambda {names}: ({parts})")


def remember(memo: dict[Any, MemoEntry], key: Any, entry: MemoEntry) -> None:
    """Store an entry; a full memo is emptied first."""
    if len(memo) >= _MAX_ENTRIES:
        memo.clear()
    memo[key] = entry


def remember_result(results: set[Any], key: Any) -> None:
    if len(results) >= _MAX_ENTRIES:
        results.clear()
    results.add(key)


def is_memoizable(values: Iterable[Any]) -> bool:
    """Whether classes and shapes tell all.

    Symbolic sizes are compared with care, and a proxy has the class of what it stands
    for only by pretence.
    """
    try:
        return all(
            value.__class__ is type(value) and _has_plain_shape(value)
            for value in values
        )
    except Exception:  # whatever the value's own code does
        return False


def _has_plain_shape(value: Any) -> bool:
    shape = getattr(value, "shape", ())
    return isinstance(shape, tuple) and all(type(size) is int for size in shape)
