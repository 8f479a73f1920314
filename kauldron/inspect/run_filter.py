"""Conditions on runs: `lr > 1e-3 and state == complete`. No code is run."""

from __future__ import annotations

import dataclasses
import fnmatch
import operator
import re
from collections.abc import Callable
from typing import Any

# From the name of a column to its value in the run that is looked at.
Lookup = Callable[[str], Any]
Condition = Callable[[Lookup], Any]

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w./])
  | (?P<text>"[^"]*"|'[^']*')
  | (?P<sign><=|>=|==|!=|<|>|=|~|\(|\))
  | (?P<name>\w[\w./:\-\[\]*]*)
    )""",
    re.VERBOSE,
)
_WORDS = {"true": True, "false": False, "none": None, "nan": float("nan")}
_ORDER = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def parse_condition(text: str, is_column: Callable[[str], bool]) -> Condition:
    """Return a function that tells whether a run matches.

    Columns are compared with numbers and texts by `<`, `<=`, `>`, `>=`, `==`, `!=` and
    `~` (matches a pattern such as `adam*`), and joined by `and`, `or`, `not` and
    brackets. A run without the value never matches, except `== none`.

    Args:
      text: The condition.
      is_column: Tells whether there is a column of that name. A word to the right of a
        comparison that is not a column is a text. Raises an error of the caller's choice
        for an unknown column on the left.

    Raises:
      ValueError: The text is not a condition.

    Example:
      >>> condition = parse_condition("lr > 1e-3 and not state == failed", {"lr", "state"}.__contains__)
      >>> condition({"lr": 0.01, "state": "complete"}.get)
      True
    """
    reader = _Reader(text=text, tokens=_tokens(text), is_column=is_column)
    condition = reader.read_or()
    if reader.tokens:
        raise _error(text, f"{reader.tokens[0][1]!r} is not expected there")
    return condition


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise _error(text, f"{text[position:].split()[0]!r} cannot be read")
        tokens.append((str(match.lastgroup), match.group(match.lastgroup or 0)))
        position = match.end()
    return tokens


def _error(text: str, problem: str) -> ValueError:
    return ValueError(
        f"{text!r} is not a condition: {problem}. Write one like "
        '"lr > 1e-3 and state == complete".'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Reader:
    """Reads tokens from the front; those that are read are removed."""

    text: str
    tokens: list[tuple[str, str]]
    is_column: Callable[[str], bool]

    def read_or(self) -> Condition:
        left = self.read_and()
        while self._take("or"):
            left = _either(left, self.read_and())
        return left

    def read_and(self) -> Condition:
        left = self.read_not()
        while self._take("and"):
            left = _both(left, self.read_not())
        return left

    def read_not(self) -> Condition:
        if self._take("not"):
            inner = self.read_not()
            return lambda lookup: not inner(lookup)
        if self._take("("):
            inner = self.read_or()
            if not self._take(")"):
                raise _error(self.text, "a bracket is not closed")
            return inner
        return self.read_comparison()

    def read_comparison(self) -> Condition:
        left = self.read_value(is_left=True)
        if not self.tokens or self.tokens[0][0] != "sign" or self.tokens[0][1] in "()":
            return left
        sign = self.tokens.pop(0)[1]
        right = self.read_value(is_left=False)
        return lambda lookup: _compare(sign, left(lookup), right(lookup))

    def read_value(self, *, is_left: bool) -> Condition:
        if not self.tokens:
            raise _error(self.text, "it ends too early")
        kind, token = self.tokens.pop(0)
        if kind == "number":
            return _constant(float(token))
        if kind == "text":
            return _constant(token[1:-1])
        if kind != "name" or token in ("and", "or", "not"):
            raise _error(self.text, f"{token!r} is not a column or a value")
        if token.lower() in _WORDS:
            return _constant(_WORDS[token.lower()])
        if is_left or _is_known(token, self.is_column):
            self.is_column(token)
            return lambda lookup: lookup(token)
        return _constant(token)

    def _take(self, token: str) -> bool:
        if self.tokens and self.tokens[0][1] == token:
            self.tokens.pop(0)
            return True
        return False


def _is_known(name: str, is_column: Callable[[str], bool]) -> bool:
    try:
        return is_column(name)
    except LookupError:
        return False


def _constant(value: Any) -> Condition:
    return lambda lookup: value


def _both(left: Condition, right: Condition) -> Condition:
    return lambda lookup: bool(left(lookup) and right(lookup))


def _either(left: Condition, right: Condition) -> Condition:
    return lambda lookup: bool(left(lookup) or right(lookup))


def _compare(sign: str, left: Any, right: Any) -> bool:
    if sign == "~":
        return left is not None and fnmatch.fnmatch(str(left), str(right))
    if sign in ("==", "="):
        return left == right
    if sign == "!=":
        return left is not None and left != right
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    texts = isinstance(left, str) and isinstance(right, str)
    return (numbers or texts) and _ORDER[sign](left, right)
