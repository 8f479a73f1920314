"""Shape specs with f-string parts: `Float["b {n}"]`.

A template is compiled once; on each check its expressions are evaluated with the names
that are visible there, and the resulting text is a spec like any other.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from kauldron.ktyping.shapes.parsing import ShapeSpecSyntaxError
from kauldron.ktyping.shapes.sizes import ShapeError

Lookup = Callable[[str], Any]  # raises KeyError for a name that is not visible


@dataclasses.dataclass(frozen=True)
class _Expression:
    text: str
    code: CodeType
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SpecTemplate:
    """The pieces of a spec: plain text and expressions, in order."""

    text: str
    pieces: tuple[str | _Expression, ...]

    def render(self, lookup: Lookup, visible: Callable[[], Iterable[str]]) -> str:
        """Evaluate the expressions and splice in their text.

        For an error, `visible` lists the names that could have been used.
        """
        return "".join(
            piece if isinstance(piece, str) else self._evaluate(piece, lookup, visible)
            for piece in self.pieces
        )

    def _evaluate(
        self,
        expression: _Expression,
        lookup: Lookup,
        visible: Callable[[], Iterable[str]],
    ) -> str:
        namespace: dict[str, Any] = {}
        for name in expression.names:
            try:
                namespace[name] = lookup(name)
            except KeyError:
                continue  # a built-in, or a name bound inside the expression
        try:
            return eval(expression.code, namespace)
        except Exception as error:
            names = ", ".join(sorted(visible())) or "none"
            raise ShapeError(
                f"Cannot evaluate '{{{expression.text}}}' in shape spec {self.text!r}: "
                f"{type(error).__name__}: {error}. Available names: {names}"
            ) from error


@functools.lru_cache(maxsize=1024)
def parse_template(text: str) -> SpecTemplate:
    """Compile a spec that contains `{`.

    >>> parse_template("b {n+1}").render({"n": 3}.__getitem__, list)
    'b 4'
    """
    try:
        tree = ast.parse(f'f"""{text}"""', mode="eval").body
    except SyntaxError as error:
        position = text.index("{")
        raise ShapeSpecSyntaxError(
            text, position, f"the part in braces is not valid: {error.msg}"
        ) from None
    values = tree.values if isinstance(tree, ast.JoinedStr) else [tree]
    return SpecTemplate(text, tuple(map(_compile_piece, values)))


def _compile_piece(node: ast.expr) -> str | _Expression:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.FormattedValue)
    formatted = ast.fix_missing_locations(ast.Expression(ast.JoinedStr([node])))
    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return _Expression(
        text=ast.unparse(node.value),
        code=compile(formatted, "<shape spec>", "eval"),
        names=tuple(sorted(names)),
    )
