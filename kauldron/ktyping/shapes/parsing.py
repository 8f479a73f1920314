"""From the text of a shape spec to a `ShapeSpec`: a recursive-descent parser.

spec    = [ dim { WS dim } ]
dim     = choice [ "?" ]
choice  = sum { "|" sum }
sum     = product { ("+" | "-") product }
product = unary { ("*" | "/" | "//" | "%") unary }
unary   = "-" unary | power
power   = atom [ "**" unary ]
atom    = INT | NAME "=" INT | [ "*" | "+" ] ( NAME | "_" [ NAME ] | "#" NAME )
        | "..." | "#" INT | FUNC "(" sum { "," sum } ")" | "(" choice ")"
"""

from __future__ import annotations

import functools
import re
from typing import NoReturn

from kauldron.ktyping.shapes import spec as s

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_INT = re.compile(r"[0-9]+")
_FUNCTION = re.compile(rf"({'|'.join(s.FUNCTIONS)})\(")
_SIGIL = re.compile(r"(?:[*+]#?|#[*+]?)(?=[A-Za-z_#])")
_LENGTHS = {"": s.SINGLE, "*": s.ANY_NUMBER, "+": s.ONE_OR_MORE}

# Sizes are 64-bit and specs are short: what is longer is a mistake, and would otherwise
# meet Python's limits on integers and on recursion.
_MAX_DIGITS = 18
_MAX_OPERATIONS = 100

_OPERAND = (
    "a dimension name, a number, '_', '...', '*', '+', '#', '-', a function or '('"
)
_AFTER_OPERAND = "an operator, '|', '?', whitespace or the end"


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> s.ShapeSpec:
    """Parse a shape spec without f-string parts.

    >>> parse("*b  h*w 3")
    *b h*w 3

    Raises:
      ShapeSpecSyntaxError: With the position and the reason.
    """
    return _Parser(text).spec()


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.position = 0
        self.depth = 0  # open parentheses
        self.operations = 0

    def spec(self) -> s.ShapeSpec:
        dims: list[s.Dim] = []
        self._skip_whitespace()
        while self.position < len(self.text):
            self.operations = 0
            dims.append(self._dim())
            if self.position < len(self.text) and not self._skip_whitespace():
                self._fail(_AFTER_OPERAND)
        if len(dims) == 1 and _is_negated_name(dims[0]):
            start = self.text.index("-")
            reason = "a size cannot be the negative of a dim"
            raise ShapeSpecSyntaxError(self.text, start, reason)
        return s.ShapeSpec(tuple(dims))

    def _dim(self) -> s.Dim:
        dim = self._choice()
        return s.OptionalDim(dim) if self._take("?") else dim

    def _choice(self) -> s.Dim:
        left = self._sum()
        while self._take("|"):
            self._count_operation()
            left = s.ChoiceDim(left, self._sum())
        return left

    def _sum(self) -> s.Dim:
        left = self._product()
        while op := self._take("+", "-"):
            self._count_operation()
            left = s.BinaryOpDim(op, left, self._product())
        return left

    def _product(self) -> s.Dim:
        left = self._unary()
        while op := self._take("*", "//", "/", "%"):
            self._count_operation()
            left = s.BinaryOpDim(op, left, self._unary())
        return left

    def _unary(self) -> s.Dim:
        if self._take("-"):
            self._count_operation()
            return s.NegatedDim(self._unary())
        base = self._atom()
        if self._take("**"):
            self._count_operation()
            return s.BinaryOpDim("**", base, self._unary())
        return base

    def _atom(self) -> s.Dim:
        if self._take("..."):
            return s.AnonDims(lengths=s.ANY_NUMBER)
        if self._take("("):
            return self._parenthesised()
        if match := self._regex(_FUNCTION):
            return self._function(match[1])
        if match := self._regex(_INT):
            return s.IntDim(self._number(match[0]))
        return self._named_or_anonymous()

    def _parenthesised(self) -> s.Dim:
        self._count_operation()
        self.depth += 1
        inner = self._choice()
        self._close()
        return inner

    def _function(self, name: str) -> s.Dim:
        self._count_operation()
        self.depth += 1
        arguments = [self._sum()]
        while self._take(","):
            arguments.append(self._sum())
        self._close()
        return s.FunctionDim(name, tuple(arguments))

    def _close(self) -> None:
        if not self._take(")"):
            self._fail("an operator, ',' between arguments of a function, or ')'")
        self.depth -= 1

    def _named_or_anonymous(self) -> s.Dim:
        match = self._regex(_SIGIL)
        sigil = match[0] if match else ""
        if not sigil and self._peek("#") and _INT.match(self.text, self.position + 1):
            self.position += 1
            number = self._regex(_INT)
            assert number is not None
            return s.IntDim(self._number(number[0]), broadcastable=True)
        broadcastable = "#" in sigil
        lengths = _LENGTHS[sigil.replace("#", "")]
        if not broadcastable and self._take("_"):
            match = self._regex(_NAME)
            return s.AnonDims(match[0] if match else "", lengths)
        match = self._regex(_NAME)
        if match is None:
            self._fail(_OPERAND)
        if not sigil and self._take("="):
            if (number := self._regex(_INT)) is None:
                self._fail("a number")
            return s.IntDim(self._number(number[0]))
        return s.NamedDims(match[0], lengths, broadcastable)

    def _number(self, digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            start = self.position - len(digits)
            raise ShapeSpecSyntaxError(self.text, start, "number is too large")
        return int(digits)

    def _count_operation(self) -> None:
        self.operations += 1
        if self.operations > _MAX_OPERATIONS:
            reason = f"a dim may have at most {_MAX_OPERATIONS} operators"
            raise ShapeSpecSyntaxError(self.text, self.position - 1, reason)

    # What the text says at the current position.

    def _peek(self, token: str) -> bool:
        return self.text.startswith(token, self.position)

    def _take(self, *tokens: str) -> str:
        """Step over the first of `tokens` that is next, '' if none is."""
        for token in tokens:
            if self._peek(token) and not (token == "*" and self._peek("**")):
                self.position += len(token)
                return token
        return ""

    def _regex(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def _skip_whitespace(self) -> bool:
        start = self.position
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1
        return self.position > start

    def _fail(self, expected: str) -> NoReturn:
        raise diagnose(self.text, self.position, self.depth, expected)


def _is_negated_name(dim: s.Dim) -> bool:
    return isinstance(dim, s.NegatedDim) and isinstance(dim.child, s.NamedDims)


#
# Syntax errors
#


class ShapeSpecSyntaxError(ValueError):
    """A shape spec is not written in the shape language.

    Attributes:
      spec: The whole spec.
      position: Index of the offending character, from 0.
      where: What the spec belongs to, such as `argument 'x' of f()`; may be empty.
    """

    label = "Invalid shape spec"

    def __init__(self, spec: str, position: int, reason: str, where: str = ""):
        super().__init__(spec, position, reason, where)
        self.spec = spec
        self.position = position
        self.reason = reason
        self.where = where

    def at(self, where: str) -> ShapeSpecSyntaxError:
        """Return the same error, saying what the spec belongs to."""
        return type(self)(self.spec, self.position, self.reason, where)

    def __str__(self) -> str:
        where = f" of {self.where}" if self.where else ""
        shown = "".join(" " if char.isspace() else char for char in self.spec)
        return (
            f"{self.label}{where} at position {self.position + 1}: {self.reason}\n"
            f"  {shown}\n"
            f"  {' ' * self.position}^"
        )


class WhiteSpaceError(ShapeSpecSyntaxError):
    """Whitespace inside a dim."""

    label = "Unexpected whitespace in shape spec"


class InvalidCommaError(ShapeSpecSyntaxError):
    """A comma between dims."""

    label = "Unexpected comma in shape spec"


class PostModifierError(ShapeSpecSyntaxError):
    """`b*` where `*b` is meant."""

    label = "Misplaced modifier in shape spec"


class AnonymousFixedDimError(ShapeSpecSyntaxError):
    """`_3`: anonymous and fixed."""

    label = "Anonymous dim with a fixed size in shape spec"


class AnonymousBroadcastableDimError(ShapeSpecSyntaxError):
    """`#_`: anonymous and broadcastable."""

    label = "Anonymous broadcastable dim in shape spec"


#
# Which mistake was made where the parser could not go on
#


_MODIFIERS_BEFORE = re.compile(r"[*#]*$")
_MODIFIERS_AFTER = re.compile(r"[*#]*")
_NAME_BEFORE = re.compile(r"(?<![A-Za-z0-9_])_?[A-Za-z][A-Za-z0-9_]*$")
_OPERATORS = "+-*/%|?"


def diagnose(
    text: str, position: int, depth: int, expected: str
) -> ShapeSpecSyntaxError:
    """Make the error for the place where the parser stopped.

    There `depth` parentheses are open, and `expected` could have come next.
    """
    at = text[position : position + 1]
    before = text[position - 1 : position] if position else ""
    if at == "," and not (depth and expected.startswith("a dimension")):
        return InvalidCommaError(
            text, position, "separate dims with spaces, not with commas"
        )
    modifier = _misplaced_modifier(text, position)
    if modifier is not None:
        reason = "modifiers go in front of the name: `*b`, `#c`, `*#b`"
        return PostModifierError(text, modifier, reason)
    if before == "_" and at.isdigit():
        reason = (
            "an axis cannot be both fixed and anonymous: drop the `_` or the number"
        )
        return AnonymousFixedDimError(text, position, reason)
    if (before, at) in (("#", "_"), ("_", "#")) or _anonymous_name_before(
        text, position
    ):
        reason = "a broadcastable anonymous axis is the same as `_`, so write that"
        return AnonymousBroadcastableDimError(text, position, reason)
    if _is_whitespace_mistake(text, position, depth):
        reason = (
            "whitespace only separates dims: write `a+b` without spaces; "
            "einops-style `(a b)` is not allowed"
        )
        return WhiteSpaceError(text, position, reason)
    found = f"{at!r}" if at else "the end of the spec"
    return ShapeSpecSyntaxError(text, position, f"found {found}, expected {expected}")


def _misplaced_modifier(text: str, position: int) -> int | None:
    """Return where the `*` and `#` behind a name start, if the parser stopped there."""
    start = _MODIFIERS_BEFORE.search(text, 0, position)
    assert start is not None
    end = _MODIFIERS_AFTER.match(text, position)
    assert end is not None
    if start.start() == end.end():
        return None
    following = text[end.end() : end.end() + 1]
    ends_there = not following or following.isspace() or following in ",)"
    name = _NAME_BEFORE.search(text, 0, start.start())
    if not ends_there or name is None:
        return None
    return start.start()


def _anonymous_name_before(text: str, position: int) -> bool:
    """Return whether this is `_foo#...`."""
    name = _NAME_BEFORE.search(text, 0, position)
    return bool(
        name and name[0].startswith("_") and text[position : position + 1] == "#"
    )


def _is_whitespace_mistake(text: str, position: int, depth: int) -> bool:
    at, before = text[position : position + 1], text[position - 1 : position]
    if at.isspace():
        return depth > 0 or (bool(before) and before in _OPERATORS)
    if at and at in _OPERATORS:
        after = text[position + 1 : position + 2]
        return before.isspace() or after.isspace()
    # `a +`: the operator was read as the sigil of a dim that never came.
    return not at and bool(before) and before in _OPERATORS and text[-2:-1].isspace()
