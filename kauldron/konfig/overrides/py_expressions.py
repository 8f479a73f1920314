"""Read the text after `py::`: calls, qualified names and data, as config nodes.

`py::optax.adam(1e-3)` looks like Python but nothing is evaluated or imported: a call
becomes a `__qualname__` node and a bare name a `__const__` node. The text is parsed by
Python's own parser. The one addition, `module:attribute`, is first turned into
`module.attribute`, which keeps every column where it was.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

from kauldron.konfig.symbols import expand_alias
from kauldron.konfig.tree.configdict import ConfigDict

PREFIX = "py::"

# Wrapping the text lets it span lines. Columns are counted from the wrapped text.
_OPEN, _CLOSE = "(", "\n)"


def parse_py(expression: str) -> Any:
    """Return the value that an expression describes.

    Raises:
      ValueError: The text is not an expression of this kind. The message quotes it,
        and tells the position and the reason.

    Example:
      >>> parse_py("py::optax.adam(1e-3)").to_dict()
      {'__qualname__': 'optax:adam', '0': 0.001}
      >>> parse_py("[np.float32, None]")[0].to_dict()
      {'__const__': 'numpy:float32'}
    """
    text = expression.removeprefix(PREFIX)
    return _Reader(text).read()


class _Reader:
    """Turns the syntax tree of one expression into values."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")

    def read(self) -> Any:
        if not self.text.strip():
            self.fail("the expression is empty", 0)
        source = self._with_dots_for_colons()
        try:
            with warnings.catch_warnings():  # about escapes such as "\d"
                warnings.simplefilter("ignore")
                tree = ast.parse(source, mode="eval").body
        except SyntaxError as error:
            at = self._index(error.lineno or 1, (error.offset or 1) - 1)
            self.fail(f"{error.msg}", at)
        except (ValueError, RecursionError, MemoryError) as error:
            self.fail(str(error) or type(error).__name__, 0)
        if isinstance(tree, ast.Tuple) and _is_bare(tree):
            self.fail("a tuple is written in parentheses", 0)
        try:
            return self.value(tree)
        except RecursionError:
            self.fail("too deeply nested", 0)

    # --------------------------------------------------------------------------------
    # One method per kind of value
    # --------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.List(elts=items):
                return [self.value(item) for item in self._items(items)]
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in self._items(items))
            case ast.Set(elts=items):
                return self._set(items)
            case ast.Dict():
                return self._dict(node)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                return self._signed(sign, operand)
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
                return self._complex(node, left, right)
            case ast.Call(func=ast.Name(id="set"), args=[], keywords=[]):
                return set()  # as Python writes the empty set
            case ast.Call():
                return self._call(node)
            case ast.Name() | ast.Attribute():
                return ConfigDict({"__const__": self._qualname(node)})
        self.fail(f"{_describe(node)} is not allowed here", node)

    def _items(self, items: list[ast.expr]) -> Iterator[ast.expr]:
        for item in items:
            if isinstance(item, ast.Starred):
                self.fail("'*' is not allowed", item)
            yield item

    def _set(self, items: list[ast.expr]) -> set[Any]:
        result = set()
        for item in self._items(items):
            try:
                result.add(self.value(item))
            except TypeError:
                self.fail("an item of a set must be hashable data", item)
        return result

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        result = {}
        for key_node, value_node in zip(node.keys, node.values):
            if key_node is None:
                self.fail("'**' is not allowed", value_node)
            key = self.value(key_node)
            if not isinstance(key, (str, int, float, bool)):
                self.fail("a key must be a string, a number or a bool", key_node)
            if key in result:
                self.fail(f"the key {key!r} is given twice", key_node)
            result[key] = self.value(value_node)
        return result

    def _signed(self, sign: ast.unaryop, operand: ast.expr) -> Any:
        value = self.value(operand)
        if isinstance(value, bool) or not isinstance(value, (int, float, complex)):
            self.fail("a sign needs a number", operand)
        return -value if isinstance(sign, ast.USub) else value

    def _complex(self, node: ast.BinOp, left: ast.expr, right: ast.expr) -> complex:
        real, imaginary = self.value(left), self.value(right)
        if not isinstance(real, (int, float)) or not isinstance(imaginary, complex):
            self.fail("arithmetic is not allowed", node)
        return real + imaginary if isinstance(node.op, ast.Add) else real - imaginary

    def _call(self, node: ast.Call) -> ConfigDict:
        fields: dict[str, Any] = {"__qualname__": self._qualname(node.func)}
        for index, item in enumerate(self._items(node.args)):
            fields[str(index)] = self.value(item)
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail("'**' is not allowed", keyword.value)
            if keyword.arg in fields:
                self.fail(f"the argument {keyword.arg!r} is given twice", keyword.value)
            fields[keyword.arg] = self.value(keyword.value)
        return ConfigDict(fields)

    def _qualname(self, node: ast.expr) -> str:
        name = re.sub(r"\s", "", self.text[slice(*self._span(node))])
        inner = node
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        if not isinstance(inner, ast.Name) or not re.fullmatch(r"[\w.:]+", name):
            self.fail("only a dotted name can be called or named", node)
        if name.count(":") > 1:
            self.fail("more than one colon in a name", node)
        if ":" not in name:
            module, dot, attribute = name.rpartition(".")
            if not dot:
                hint = f"write module.{name} or module:{name}"
                self.fail(f"{name!r} names no module, {hint} (text needs quotes)", node)
            name = f"{module}:{attribute}"
        return expand_alias(name)

    # --------------------------------------------------------------------------------
    # Colons
    # --------------------------------------------------------------------------------

    def _with_dots_for_colons(self) -> str:
        """Return the text to parse: in parentheses, with dots in qualified names."""
        characters = list(self.text)
        for colon in self._name_colons():
            characters[colon] = "."
        return _OPEN + "".join(characters) + _CLOSE

    def _name_colons(self) -> list[int]:
        """Return the positions of colons that do not separate a key from its value.

        A key is data, never a name: in a dict the first colon of each element is that
        of the dict.
        """
        colons: list[int] = []
        brackets: list[_Bracket] = []
        for token in self._tokens():
            at = self._index(*token.start)
            if token.string in ("(", "[", "{"):
                brackets.append(_Bracket(token.string, at))
            elif token.string in (")", "]", "}"):
                bracket = brackets.pop()
                is_end = at == len(self.text)
                if is_end and brackets:
                    self.fail(f"{bracket.text!r} was never closed", bracket.at)
                if not is_end and not brackets:
                    self.fail(f"{token.string!r} was never opened", at)
            elif token.string == ",":
                brackets[-1].has_colon = False
            elif token.string == ":":
                if brackets[-1].text == "{" and not brackets[-1].has_colon:
                    brackets[-1].has_colon = True
                else:
                    colons.append(at)
        return colons

    def _tokens(self) -> Iterator[tokenize.TokenInfo]:
        readline = io.StringIO(_OPEN + self.text + _CLOSE).readline
        try:
            for token in tokenize.generate_tokens(readline):
                if token.type == tokenize.COMMENT:
                    at = self._index(*token.start)
                    self.fail("'#' starts a comment; text needs quotes", at)
                yield token
        except (tokenize.TokenError, SyntaxError) as error:
            self.fail(str(error.args[0]), 0)

    # --------------------------------------------------------------------------------
    # Positions and errors
    # --------------------------------------------------------------------------------

    def _index(self, line: int, column: int) -> int:
        """Return the position in the text of a place in the wrapped text."""
        lines = (_OPEN + self.text).split("\n")
        index = sum(len(text) + 1 for text in lines[: line - 1]) + column - len(_OPEN)
        return min(max(index, 0), len(self.text))  # the wrapping counts as the ends

    def _span(self, node: ast.expr) -> tuple[int, int]:
        lines = (_OPEN + self.text + _CLOSE).split("\n")

        def index(line: int, byte: int) -> int:  # ast counts UTF-8 bytes
            column = len(lines[line - 1].encode()[:byte].decode())
            return self._index(line, column)

        start = index(node.lineno, node.col_offset)
        end = index(node.end_lineno or 1, node.end_col_offset or 0)
        return start, end

    def fail(self, reason: str, at: ast.expr | int) -> NoReturn:
        position = at if isinstance(at, int) else self._span(at)[0]
        reason = reason.replace(" (detected at line 1)", "").rstrip(".?")
        message = (
            f"Cannot read the expression {PREFIX + self.text!r}, "
            f"position {position + 1}: {reason}."
        )
        if self.text.isprintable():
            message += f"\n    {self.text}\n    {' ' * position}^"
        raise ValueError(message) from None


@dataclasses.dataclass
class _Bracket:
    """An open bracket, and whether the current element of a dict had its colon."""

    text: str
    at: int
    has_colon: bool = False


def _is_bare(node: ast.Tuple) -> bool:
    """Return whether a tuple got its parentheses only from the wrapping."""
    return node.col_offset == 0 and node.lineno == 1


def _describe(node: ast.expr) -> str:
    names = {
        ast.BinOp: "an operator",
        ast.BoolOp: "'and' or 'or'",
        ast.Compare: "a comparison",
        ast.Lambda: "a lambda",
        ast.JoinedStr: "an f-string",
        ast.Subscript: "an index",
        ast.Starred: "'*'",
        ast.UnaryOp: "this operator",
        ast.NamedExpr: "':='",
    }
    return names.get(type(node), f"{type(node).__name__!r}")
