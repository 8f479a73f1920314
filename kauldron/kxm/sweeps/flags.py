"""Sweeps on the command line: `--sweep.seed=0:4`."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kauldron.konfig.overrides.values import parse_literal
from kauldron.kxm.sweeps.items import SweepInfo, SweepItem, checked_items


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlagSweep(SweepInfo):
    """The product of lists of values that were given on the command line.

    Attributes:
      values: From the path in the config to its values.
      prefix: What flags of the program begin with.
    """

    values: Mapping[str, tuple[Any, ...]]
    prefix: str = "cfg."

    def __iter__(self) -> Iterator[SweepItem]:
        for combination in itertools.product(*self.values.values()):
            item = dict(zip(self.values, combination))
            yield from checked_items([item], "--sweep", self.prefix)


def sweep_from_flags(flags: Sequence[str], *, prefix: str = "cfg.") -> FlagSweep:
    """Return the sweep that `--sweep.path=values` flags describe.

    Args:
      flags: Such as `--sweep.seed=0:4`, in order; the last varies fastest.
      prefix: What the flags of the program begin with.

    Raises:
      ValueError: A flag cannot be read, or a path is given twice.

    Example:
      >>> [item.xm_ui_kwargs for item in sweep_from_flags(["--sweep.seed=0:2"])]
      [{'seed': 0}, {'seed': 1}]
    """
    values: dict[str, tuple[Any, ...]] = {}
    for flag in flags:
        name, equals, text = flag.partition("=")
        path = name.lstrip("-").removeprefix("sweep.").removeprefix(prefix)
        if not equals or not path:
            raise ValueError(
                f"{flag}: write --sweep.path=values, such as 1,2,3 or 0:4."
            )
        if path in values:
            raise ValueError(f"{flag}: --sweep.{path} is given twice.")
        values[path] = tuple(parse_values(text, flag))
    return FlagSweep(values=values, prefix=prefix)


_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(?::(?:(log|lin)=?(\d+)|({_NUMBER})))?")

_LIKE_A_RANGE = re.compile(rf"(?:(?:log|lin)\w*|{_NUMBER})(?::[\w.+=-]*)+")


def parse_values(text: str, flag: str = "") -> list[Any]:
    """Return the values that the text of a sweep flag lists.

    `a,b,c` is a list, `0:4` the integers 0 to 3, `0:10:2` every second one, `0:1:0.25`
    numbers up to but without the end, `0:1:lin5` five numbers with both ends, and
    `1e-4:1e-1:log4` four numbers with equal ratios. They may be mixed: `0:3,10`.

    Args:
      text: What stands behind the `=`.
      flag: For messages.

    Raises:
      ValueError: It lists nothing, or a range is empty or mistyped.

    Example:
      >>> parse_values("1e-3,3e-3"), parse_values("0:10:5"), parse_values("a,[1,2]")
      ([0.001, 0.003], [0, 5], ['a', [1, 2]])
      >>> parse_values("1e-4:1e-1:log4")
      [0.0001, 0.001, 0.01, 0.1]
    """
    parts = _split(text)
    if not text.strip() or any(not part.strip() for part in parts):
        raise ValueError(f"{flag or text!r}: a value is missing.")
    values: list[Any] = []
    for part in map(str.strip, parts):
        match = _RANGE.fullmatch(part)
        if match is None and _LIKE_A_RANGE.fullmatch(part):
            raise ValueError(
                f"{flag or text}: {part!r} is not a range. Ranges are 0:4, 0:10:2, "
                "0:1:lin5 and 1e-4:1e-1:log4; a text is written in quotes."
            )
        values += _range(match, flag or part) if match else [parse_literal(part)]
    return values


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _range(match: re.Match[str], flag: str) -> list[Any]:
    low, high = (ast.literal_eval(match[i].lstrip("+")) for i in (1, 2))
    kind, count, step = match[3], match[4], match[5]
    if kind is not None:
        return _spaced(kind, low, high, int(count), flag)
    size = ast.literal_eval(step.lstrip("+")) if step else 1
    if size == 0:
        raise ValueError(f"{flag}: the step of a range must not be 0.")
    if all(isinstance(number, int) for number in (low, high, size)):
        values: list[Any] = list(range(low, high, size))
    else:
        if step is None:
            raise ValueError(
                f"{flag}: a range of fractions needs a step or a count: "
                f"{match[1]}:{match[2]}:0.1, {match[1]}:{match[2]}:lin5 or "
                f"{match[1]}:{match[2]}:log5."
            )
        number = max(0, math.ceil((high - low) / size - 1e-9))
        values = [_rounded(low + index * size) for index in range(number)]
    if not values:
        raise ValueError(f"{flag}: the range is empty.")
    return values


def _spaced(kind: str, low: float, high: float, count: int, flag: str) -> list[Any]:
    if count < 2:
        raise ValueError(
            f"{flag}: {kind}{count} must be at least {kind}2, as both ends are values."
        )
    if kind == "lin":
        return [_rounded(low + (high - low) * i / (count - 1)) for i in range(count)]
    if low <= 0 or high <= 0:
        raise ValueError(f"{flag}: a logarithmic range needs positive ends.")
    ends = math.log(low), math.log(high)
    inner = range(1, count - 1)
    middle = [
        _rounded(math.exp(ends[0] + (ends[1] - ends[0]) * i / (count - 1)))
        for i in inner
    ]
    return [float(low), *middle, float(high)]


def _rounded(value: float) -> float:
    """Return a number without the noise of binary fractions: 0.3, not 0.30000000000000004."""
    return float(f"{value:.12g}")
