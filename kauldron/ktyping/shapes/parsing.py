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
from kauldron.ktyping.shapes.diagnosis import diagnose
from kauldron.ktyping.shapes.spec_errors import ShapeSpecSyntaxError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_INT = re.compile(r"[0-9]+")
_FUNCTION = re.compile(rf"({'|'.join(s.FUNCTIONS)})\(")
_SIGIL = re.compile(r"(?:[*+]#?|#[*+]?)(?=[A-Za-z_#])")
_LENGTHS = {"": s.SINGLE, "*": s.ANY_NUMBER, "+": s.ONE_OR_MORE}

# Sizes are 64-bit, and nobody writes a hundred operators: what is longer is a mistake,
# and would otherwise meet Python's limits on integers and on recursion.
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
