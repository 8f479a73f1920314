"""Children between brackets, as `repr` of configs and frozen dicts lay them out."""

from __future__ import annotations

from collections.abc import Sequence

_ONE_LINE_WIDTH = 20


def block(opening: str, children: Sequence[str], closing: str) -> str:
    """On one line if there is little to show, else one child per line.

    >>> block("f(", ["x=1", "y=2"], ")")
    'f(x=1, y=2)'
    >>> print(block("f(", ["x=1000000000", "y=2000000000"], ")"))
    f(
        x=1000000000,
        y=2000000000,
    )
    """
    short = len(children) <= 1 or sum(map(len, children)) <= _ONE_LINE_WIDTH
    if short and not any("\n" in child for child in children):
        return f"{opening}{', '.join(children)}{closing}"
    body = "".join(f"{child},\n" for child in children)
    indented = "".join(f"    {line}" for line in body.splitlines(keepends=True))
    return f"{opening}\n{indented}{closing}"
