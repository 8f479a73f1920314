"""The reference: every public name of a namespace, with a signature that can be read.

A page says only which namespace it is about:

    .. namespace:: kauldron.metrics
"""

from __future__ import annotations

import importlib
import inspect
import re
import types
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from public_names import homes, public_names, readable_signature
from sphinx.util.docutils import SphinxDirective


class Namespace(SphinxDirective):
    """Lists the names of a namespace in a table, then documents each."""

    required_arguments = 1
    option_spec = {"first": directives.unchanged}  # names to begin with

    def run(self) -> list[nodes.Node]:
        module = importlib.import_module(self.arguments[0])
        first = self.options.get("first", "").split()
        names = [*first, *(n for n in public_names(module) if n not in first)]
        documented, listed = [], []
        for name in names:
            (documented if _has_own_text(getattr(module, name)) else listed).append(
                name
            )
        lines = [*_table(module, documented), ""]
        for name in documented:
            place = f"{module.__name__}.{name}"
            if homes()[id(getattr(module, name))] == place:
                lines += [*_entry(module, name), ""]
        lines += _list(module, listed)
        return self.parse_text_to_nodes("\n".join(lines))


def _has_own_text(value: Any) -> bool:
    """Return whether a value is one of our classes or functions."""
    wrapped = inspect.unwrap(value) if inspect.isroutine(value) else value
    module = getattr(wrapped, "__module__", None) or ""
    is_ours = module.startswith("kauldron") and not module.startswith(
        ("kauldron.ktyping.array_types", "kauldron.typing")
    )
    if not is_ours or isinstance(value, types.UnionType | types.GenericAlias):
        return False
    return bool(inspect.isclass(value) or inspect.isroutine(value)) and bool(
        inspect.getdoc(value)
    )


def _table(module: types.ModuleType, names: list[str]) -> list[str]:
    if not names:
        return []
    lines = [".. list-table::", "   :widths: 30 70", "   :class: names", ""]
    for name in names:
        value = getattr(module, name)
        role = "class" if inspect.isclass(value) else "func"
        if inspect.isclass(value) and issubclass(value, BaseException):
            role = "exc"
        lines += [
            f"   * - :py:{role}:`{name} <{homes()[id(value)]}>`",
            f"     - {summary(value)}",
        ]
    return lines


def summary(value: Any) -> str:
    """Return the first sentence of a docstring, as reStructuredText."""
    first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    first = re.sub(r"`+([^`]+)`+", r"``\1``\\ ", first)
    return re.sub(r"\*(?=\w)", r"\\*", first)


def _entry(module: types.ModuleType, name: str) -> list[str]:
    value = getattr(module, name)
    kind = "autofunction"
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
    lines = [f".. {kind}:: {module.__name__}.{name}"]
    if kind == "autoclass":
        lines.append("   :members:")
    return lines


def _list(module: types.ModuleType, names: list[str]) -> list[str]:
    """Document types, constants, and functions of other libraries, in one entry."""
    if not names:
        return []
    head, *rest = names
    lines = [f".. py:currentmodule:: {module.__name__}", "", f".. py:data:: {head}"]
    lines += [f"             {name}" for name in rest]
    if module.__name__ == "kauldron.typing":  # links lead to `ktyping`
        lines.append("   :no-index:")
    return [*lines, "", f"   {_LISTED.get(module.__name__, 'Types and constants.')}"]


_LISTED = {
    "kauldron.random": "The functions of ``jax.random``, for either kind of key.",
    "kauldron.ktyping": 'Array types: ``Float["b n"]``. ``Tf`` are those of '
    "TensorFlow, ``X`` those of any library. The rest are types and settings.",
    "kauldron.typing": "Array types and settings, as in ``kauldron.ktyping``.",
}


#
# What Sphinx asks
#


def skip_member(app, what, name, value, skip, options):
    """Leave out methods that come from other libraries. Called by autodoc."""
    function = getattr(value, "__func__", value)
    if inspect.isfunction(function):
        module = inspect.unwrap(function).__module__ or ""
        return skip or not module.startswith("kauldron")
    return None


def process_signature(app, what, name, value, options, signature, result):
    """Called by autodoc for each entry."""
    if what in ("class", "exception", "function", "method"):
        return readable_signature(value)
    return None
