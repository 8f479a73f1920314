"""The text form of paths such as `a.b[0].c["odd key"].**.lr`.

Shared by `konfig` (overrides) and `kontext` (paths into trees); knows nothing of
either and imports only the standard library.

A parsed path is a tuple of parts: strings (from `.name` and `["key"]`), integers (from
`[0]` and `.0`), the other Python constants, slices and tuples that may stand between
brackets, and `Wildcard` members.

>>> parse("layers[0].kernel")
('layers', 0, 'kernel')
>>> format_path(("layers", 0, "odd key"))
"layers[0]['odd key']"
"""

from __future__ import annotations

import ast
import enum
import functools
import math
import re
import sys
from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Any, NoReturn, TypeAlias


class Wildcard(enum.StrEnum):
    """`*` stands for exactly one part, `**` for any number of parts, also none.

    Members compare equal to the plain strings `"*"` and `"**"`, which are legal keys:
    test with `isinstance(part, Wildcard)`, never with `==`.
    """

    STAR = "*"
    DOUBLE_STAR = "**"


Part: TypeAlias = (
    int | float | complex | bool | str | slice | EllipsisType | tuple[Any, ...] | None
)


class PathSyntaxError(ValueError):
    """A text is not a path.

    Attributes:
      text: The whole text.
      column: Index in `text` of the character that is wrong.
      reason: What was wrong and what was expected.
      hint: How to write it, or an empty string.
      prefix: Text that goes before the message; empty, for the caller to fill.
    """

    prefix = ""

    def __init__(self, text: str, column: int, reason: str, hint: str = "") -> None:
        super().__init__(text, column, reason, hint)
        self.text = text
        self.column = column
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        caret = " " * len(_printable(self.text[: self.column])) + "^"
        lines = [
            f"{self.prefix}Invalid path, column {self.column + 1}: {self.reason}",
            f"    {_printable(self.text)}",
            f"    {caret}",
        ]
        return "\n".join(lines + ([self.hint] if self.hint else []))


def _printable(text: str) -> str:
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


# ------------------------------------------------------------------------------------
# Text to parts
# ------------------------------------------------------------------------------------

_QUOTED = r"""'(?:[^'\\\r\n]|\\[^\r\n])*'|"(?:[^"\\\r\n]|\\[^\r\n])*\""""
_BODY = rf"""(?:[^\[\]'"\\#\r\n\f]|{_QUOTED})*"""
_ITEM = rf"\[{_BODY}\]"
_STEP = re.compile(
    rf"[ \t]*(?P<dot>\.[ \t]*)?"
    rf"(?:(?P<word>[^\s.\[\]*]+)|(?P<stars>\*+)|(?P<item>{_ITEM}))[ \t]*"
)
_DOTTED_INT = re.compile(r"[+-]?[0-9]+")
_PLAIN_INT = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")
_EXPECTED_SEGMENT = "Expected a name, an integer, '*' or '**'."
_BEFORE_EQUALS = re.compile(rf"(?:[^=\[]|{_ITEM}|\[)*")


@functools.lru_cache(maxsize=8192)
def parse(text: str) -> tuple[Part, ...]:
    """Return the parts of a path.

    Args:
      text: A path. The empty text is the path without parts.

    Returns:
      The parts. Wildcards are `Wildcard` members.

    Raises:
      PathSyntaxError: `text` is not a path.
    """
    parts: list[Part] = []
    position = 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            if not text[position:].strip(" \t"):
                break
            _raise_bad_step(text, position)
        kind = step.lastgroup
        needs_dot = position > 0 and kind != "item"
        if needs_dot != (step["dot"] is not None):
            _raise_bad_step(text, position)
        start = step.start(kind)  # pyright: ignore[reportArgumentType]
        if kind == "word":
            parts.append(_parse_word(text, start, step["word"]))
        elif kind == "item":
            parts.append(_parse_item(text, start, step["item"]))
        elif len(step["stars"]) <= 2:
            parts.append(Wildcard(step["stars"]))
        else:
            raise PathSyntaxError(text, start + 2, "the wildcards are '*' and '**'.")
        position = step.end()
    return tuple(parts)


def _parse_word(text: str, start: int, word: str) -> Part:
    if word.isidentifier():
        return sys.intern(str(word))
    if _DOTTED_INT.fullmatch(word):
        try:
            return int(word)
        except ValueError:  # Python limits the digits of a decimal number
            reason = "this number has too many digits."
            raise PathSyntaxError(text, start, reason) from None
    odd = (i for i in range(len(word)) if not ("_" + word[i]).isidentifier())
    bad = next(odd, 0)
    verb = "start" if bad == 0 else "be in"
    reason = f"{word[bad]!r} cannot {verb} a name. {_EXPECTED_SEGMENT}"
    raise PathSyntaxError(text, start + bad, reason, _hint_for_odd_word(word))


def _hint_for_odd_word(word: str) -> str:
    quoted = f"[{_double_quoted(word)}]"
    pieces = word.split("/")
    if len(pieces) > 1 and all(p.isidentifier() or p.isdecimal() for p in pieces):
        return f"Write {'.'.join(pieces)}, or {quoted} if this is one key."
    return f"A key that is not a name is written in quotes: {quoted}"


def _double_quoted(word: str) -> str:
    return repr(word) if '"' in word or "\\" in word else f'"{_printable(word)}"'


def _raise_bad_step(text: str, position: int) -> NoReturn:
    """Explain why no step of a path starts at `position`."""
    at = _skip_blanks(text, position)
    first = at == 0 or not text[:position].strip(" \t")
    if text[at] == ".":
        after = _skip_blanks(text, at + 1)
        if first or after == len(text) or text[after] == ".":
            column = at if first else min(after, len(text))
            raise PathSyntaxError(text, column, f"empty segment. {_EXPECTED_SEGMENT}")
        if text[after] == "[":
            raise PathSyntaxError(text, at, "there is no '.' before '['.")
        at = after
    if text[at] == "[":
        raise _bracket_error(text, at)
    if text[at] == "]":
        raise PathSyntaxError(text, at, "']' without '['.")
    if text[at].isspace():
        raise PathSyntaxError(text, at, "only spaces and tabs may separate tokens.")
    if "*" in (text[at], text[position - 1]):
        reason = "a wildcard is a whole segment: expected '.', '[' or the end."
        raise PathSyntaxError(text, at, reason)
    raise PathSyntaxError(text, at, "expected '.', '[' or the end of the path.")


def _skip_blanks(text: str, position: int) -> int:
    return len(text) - len(text[position:].lstrip(" \t"))


def _bracket_error(text: str, start: int) -> PathSyntaxError:
    body = re.compile(_BODY).match(text, start + 1)
    assert body is not None  # the pattern matches the empty text
    column = body.end()
    if column == len(text):
        return PathSyntaxError(text, start, "this '[' is never closed.")
    if text[column] in "'\"":
        return PathSyntaxError(text, column, "this quote is never closed.")
    return PathSyntaxError(text, column, f"unexpected {text[column]!r} in brackets.")


def _parse_item(text: str, start: int, item: str) -> Part:
    """Return the part for `item`, a bracketed text that starts at `start`."""
    body = item[1:-1].strip(" \t")
    if _PLAIN_INT.fullmatch(body):
        return int(body)
    if not body:
        reason = "empty brackets. Expected an index, a slice or a quoted key."
        raise PathSyntaxError(text, start + 1, reason)
    if body in ("*", "**"):
        reason = "a wildcard is not written in brackets."
        hint = f'Write .{body} for the wildcard, ["{body}"] for the key.'
        raise PathSyntaxError(text, item.index(body) + start, reason, hint)
    return _parse_subscript(text, start, item)


# ------------------------------------------------------------------------------------
# What stands between brackets is Python, restricted to constants
# ------------------------------------------------------------------------------------


class _NotConstant(Exception):
    """Carries the node that is not allowed and the reason."""

    def __init__(self, node: ast.expr, reason: str) -> None:
        super().__init__(node, reason)
        self.node = node
        self.reason = reason


def _parse_subscript(text: str, start: int, item: str) -> Part:
    try:
        expression = ast.parse("_" + item, mode="eval").body
        assert isinstance(expression, ast.Subscript)  # by the shape of the text
        return _index(expression.slice)
    except _NotConstant as error:
        # ast counts UTF-8 bytes, and one character more for the "_".
        before = ("_" + item).encode()[: error.node.col_offset].decode()
        column, reason, hint = len(before) - 1, error.reason, _hint_for_node(error.node)
    except SyntaxError as error:
        column, reason, hint = (error.offset or 2) - 2, f"{error.msg}.", ""
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        column, reason, hint = 1, f"not a Python constant: {error}.", ""
    column = start + min(max(column, 1), len(item) - 1)
    raise PathSyntaxError(text, column, reason, hint)


def _hint_for_node(node: ast.expr) -> str:
    is_name = isinstance(node, (ast.Name, ast.Attribute))
    return f'A key is written in quotes: ["{ast.unparse(node)}"]' if is_name else ""


def _index(node: ast.expr) -> Part:
    if isinstance(node, ast.Tuple):
        return tuple(map(_axis, node.elts))
    return _axis(node)


def _axis(node: ast.expr) -> Part:
    if isinstance(node, ast.Slice):
        return slice(*map(_bound, (node.lower, node.upper, node.step)))
    return _constant(node)


def _bound(node: ast.expr | None) -> int | None:
    if node is None:
        return None
    value = _constant(node)
    if type(value) is not int:
        raise _NotConstant(node, "the bounds of a slice are integers.")
    return value


def _constant(node: ast.expr) -> Part:
    match node:
        case ast.Constant(value=bytes()):
            raise _NotConstant(node, "a bytes literal is not a key.")
        case ast.Constant(value=value):
            return value  # pyright: ignore[reportReturnType]
        case ast.Tuple(elts=elements):
            return tuple(map(_constant, elements))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as operand):
            return -_number(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=ast.Constant() as operand):
            return _number(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            return _complex(left, op, right)
    reason = "expected a constant (number, string, True, False, None, ...) or a slice."
    raise _NotConstant(node, reason)


def _number(node: ast.expr) -> int | float | complex:
    value = _constant(node)
    if isinstance(value, bool) or not isinstance(value, (int, float, complex)):
        raise _NotConstant(node, "expected a number.")
    return value


def _complex(left: ast.expr, op: ast.operator, right: ast.expr) -> complex:
    real, imaginary = _number(left), _number(right)
    if isinstance(real, complex) or not isinstance(imaginary, complex):
        raise _NotConstant(left, "sums are allowed only in complex numbers.")
    return real + imaginary if isinstance(op, ast.Add) else real - imaginary


# ------------------------------------------------------------------------------------
# Parts to text
# ------------------------------------------------------------------------------------


def format_path(parts: Iterable[Part]) -> str:
    """Return the canonical text of a path, which `parse` turns into the same parts.

    >>> format_path(("a", 0, "b c", slice(None, 2), (..., -1), Wildcard.STAR))
    "a[0]['b c'][:2][...,-1].*"
    """
    return "".join(map(format_part, parts)).removeprefix(".")


def format_part(part: Part) -> str:
    """Return a part as it follows another: `.name`, `[0]`, `['odd key']`."""
    if isinstance(part, str) and (isinstance(part, Wildcard) or part.isidentifier()):
        return f".{str.__str__(part)}"
    if isinstance(part, tuple) and part:
        axes = ",".join(map(_format_axis, part))
        return f"[{axes},]" if len(part) == 1 else f"[{axes}]"
    return f"[{_format_axis(part)}]"


def _format_axis(part: Part) -> str:
    match part:
        case slice(start=start, stop=stop, step=step):
            bounds = ["" if b is None else _format_axis(b) for b in (start, stop, step)]
            return ":".join(bounds[:2] if step is None else bounds)
        case tuple():
            axes = ",".join(map(_format_axis, part))
            return f"({axes},)" if len(part) == 1 else f"({axes})"
        case str():
            return str.__repr__(part)  # a subclass may print itself otherwise
        case int() if not isinstance(part, bool):
            # Python refuses to convert very long integers to decimal text.
            return int.__repr__(part) if part.bit_length() < 2000 else hex(part)
        case float() if math.isinf(part):
            return "1e999" if part > 0 else "-1e999"
        case float():
            return float.__repr__(part)
        case complex():
            return complex.__repr__(part).strip("()").replace("inf", "1e999")
    return "..." if part is ... else repr(part)


# ------------------------------------------------------------------------------------
# Questions about paths that need no tree
# ------------------------------------------------------------------------------------


def matches(parts: Sequence[Part], pattern: Sequence[Part]) -> bool:
    """Return whether a path without wildcards is one that `pattern` stands for.

    >>> matches(parse("enc.layers[0].bias"), parse("enc.**.bias"))
    True
    """
    # row[j]: the parts seen so far match the first j parts of the pattern.
    row = _after_double_stars([True] + [False] * len(pattern), pattern)
    for part in parts:
        new = [False] * len(row)
        for j, wanted in enumerate(pattern):
            if isinstance(wanted, Wildcard):
                new[j + 1] = row[j] or (wanted is Wildcard.DOUBLE_STAR and row[j + 1])
            else:
                new[j + 1] = row[j] and wanted == part
        row = _after_double_stars(new, pattern)
    return row[-1]


def _after_double_stars(row: list[bool], pattern: Sequence[Part]) -> list[bool]:
    for j, wanted in enumerate(pattern):
        if wanted is Wildcard.DOUBLE_STAR and row[j]:
            row[j + 1] = True
    return row


def split_assignment(text: str) -> tuple[str, str | None]:
    """Split `path=value` at the first `=` that is not inside brackets.

    >>> split_assignment('a["x=y"].b=c=1')
    ('a["x=y"].b', 'c=1')
    >>> split_assignment("flag")
    ('flag', None)
    """
    match = _BEFORE_EQUALS.match(text)
    assert match is not None  # the pattern matches the empty text
    path = match[0]
    return path, (text[len(path) + 1 :] if len(path) < len(text) else None)


#
# Which parts are valid, and when they are the same
#


def comparable(part: Any) -> Any:
    """Return a hashable stand-in for a part, or for a tuple of them.

    It tells wildcards from the keys `"*"` and `"**"`.
    """
    if isinstance(part, tuple):
        return tuple(map(comparable, part))
    if isinstance(part, slice):  # hashable only from Python 3.12 on
        return (slice, part.start, part.stop, part.step)
    if isinstance(part, Wildcard):
        return (Wildcard, part.name)
    return part


def check_parts(parts: Sequence[Any]) -> None:
    """Raise `ValueError` naming the part that cannot be in a path."""
    for part in parts:
        axes = part if isinstance(part, tuple) else (part,)
        if not all(isinstance(a, slice) or _is_constant(a) for a in axes):
            raise ValueError(
                f"{part!r} cannot be a part of a path. Parts are numbers, strings, "
                "True, False, None, ..., slices, and tuples of these."
            )
        for axis in axes:
            if isinstance(axis, slice):
                _check_bounds(axis)


def _is_constant(part: Any) -> bool:
    if isinstance(part, tuple):
        return all(map(_is_constant, part))
    if isinstance(part, (float, complex)):
        return part == part  # nan has no text that parses back
    return part is None or part is ... or isinstance(part, (int, str))


def _check_bounds(axis: slice) -> None:
    bounds = (axis.start, axis.stop, axis.step)
    if any(b is not None and type(b) is not int for b in bounds):
        raise ValueError(f"{axis!r} cannot be in a path: its bounds must be integers.")
