"""Write the Python source of a config file that builds a given config."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import math
import os
import re
from typing import Any

from ml_collections import FieldReference

from kauldron.immutabledict import block
from kauldron.konfig.symbols import display_name, split_qualname
from kauldron.konfig.tree.configdict import as_config, merges_into
from kauldron.konfig.tree.node import (
    CONST_KEY,
    QUALNAME_KEY,
    Child,
    Node,
    Parts,
    Walk,
    expression,
    is_call,
    is_const,
    path_part,
    positional_count,
    raw_value,
)
from kauldron.konfig.tree.placeholders import Variable
from kauldron.konfig.tree.references import PathReference
from kauldron.konfig.tree.storing import default_values_of


def to_python(cfg: Any) -> str:
    """Return the source of a config file whose `get_config()` equals a config.

    What is called is imported inside `konfig.imports()` (modules that are not installed
    here: in a lazy block); a node that is used in several places becomes a variable;
    references to paths stay references, other references become their current value.

    Args:
      cfg: A config.

    Returns:
      Python source.

    Raises:
      CycleError: The config contains itself.
      TypeError: A value cannot be written as Python.
    """
    return _Source(as_config(cfg)).text()


class _Source:
    """Writes one config."""

    def __init__(self, cfg: Node) -> None:
        self.cfg = cfg
        self.imports = _Imports()
        self.counts: dict[int, int] = {}
        self.variables: dict[int, str] = {}
        self.walk = Walk()
        self.before: list[str] = []  # variables of shared nodes
        self.after: list[str] = []  # references
        self.count(cfg)

    def text(self) -> str:
        root = self.node(self.cfg, ())
        if not is_call(self.cfg):
            root = f"konfig.ConfigDict({root})"
        lines = [*self.before, f"cfg = {root}", *self.after, "return cfg"]
        body = "".join(_indented(line) for line in lines)
        return f"{self.imports.text()}\n\ndef get_config():\n{body}"

    def count(self, value: Any) -> None:
        """Count the places of nodes and placeholders."""
        if isinstance(value, (Node, Variable)):
            self.counts[id(value)] = self.counts.get(id(value), 0) + 1
        if not isinstance(value, (Node, list, tuple)):
            return
        for key, item in self.walk.inside(value):
            raw = raw_value(value, key)
            if self.counts.get(id(value), 0) < 2 and self.reference(value, raw) is None:
                self.count(raw if isinstance(raw, Variable) else item)

    def reference(self, holder: Any, raw: Any) -> str | None:
        """Return the source of a reference that can be written as a path."""
        if not isinstance(raw, PathReference) or isinstance(holder, tuple):
            return None
        keys = raw._konfig_pure_path(self.cfg)
        return None if keys is None else expression(keys, "cfg.ref")

    # --------------------------------------------------------------------------------
    # Values
    # --------------------------------------------------------------------------------

    def child(self, holder: Any, child: Child, at: Parts) -> str:
        place, raw, item = (*at, child.part), child.raw, child.value
        if isinstance(raw, Variable):
            return self.shared(raw, place, self.placeholder(raw, place))
        reference = self.reference(holder, raw)
        if reference is not None:  # keeps its place among positional arguments
            self.after.append(f"{expression(place)} = {reference}")
            return "None"
        return "None" if isinstance(item, FieldReference) else self.value(item, place)

    def value(self, value: Any, at: Parts) -> str:
        match value:
            case Node():
                text = self.node(value, at)
                is_dict = not is_call(value) and not is_const(value)
                if is_dict and self.counts.get(id(value), 0) > 1:
                    text = f"konfig.ConfigDict({text})"
                return self.shared(value, at, text)
            case list():
                return block("[", self.items(value, at), "]")
            case tuple():
                items = self.items(value, at)
                return f"({items[0]},)" if len(items) == 1 else block("(", items, ")")
        return self.leaf(value, at)

    def items(self, value: Any, at: Parts) -> list[str]:
        return [self.child(value, child, at) for child in self.walk.children(value)]

    def shared(self, value: Any, at: Parts, text: str) -> str:
        """Return the text, or the variable of a value that is used elsewhere too."""
        if self.counts.get(id(value), 0) < 2:
            return text
        if id(value) not in self.variables:
            words = [part for part in at if isinstance(part, str)]
            name = self.imports.new_name(words[-1] if words else "shared")
            self.variables[id(value)] = name
            self.before.append(f"{name} = {text}")
        return self.variables[id(value)]

    def node(self, node: Node, at: Parts) -> str:
        fields = node._fields
        symbol = fields.get(QUALNAME_KEY, fields.get(CONST_KEY))
        odd = len({QUALNAME_KEY, CONST_KEY} & fields.keys()) == 2
        odd = odd or (is_const(node) and len(fields) > 1)
        name = None if symbol is None or odd else self.imports.name_of(symbol)
        if name is not None and is_const(node):
            return name
        self.delete_defaults(node, default_values_of(symbol), at)
        texts = {
            child.key: self.child(node, child, at) for child in self.walk.children(node)
        }
        if name is not None:
            return self.call(name, node, texts)
        pairs = [f"{key!r}: {text}" for key, text in texts.items()]
        if symbol is not None:
            return block("konfig.ConfigDict({", pairs, "})")
        return block("{", pairs, "}")

    def delete_defaults(self, node: Node, default: Node | None, at: Parts) -> None:
        """Delete defaults that fill the call but that the config does not have."""
        if default is None or id(node) in self.variables:
            return
        fields = node._fields
        for key, value in default._fields.items():
            place = (*at, path_part(node, key))
            if key not in fields:
                line = f"del {expression(place)}"
                self.after += [] if line in self.after else [line]
            elif isinstance(value, Node) and merges_into(value, fields[key]):
                self.delete_defaults(fields[key], value, place)

    def call(self, name: str, node: Node, texts: dict[Any, str]) -> str:
        positions = [str(i) for i in range(positional_count(node))]
        arguments = [texts[key] for key in positions]
        odd = []
        for key, text in texts.items():
            if key == QUALNAME_KEY or key in positions:
                continue
            if isinstance(key, str) and _is_name(key):
                arguments.append(f"{key}={text}")
            else:
                odd.append(f"{key!r}: {text}")
        if odd:
            arguments.append(block("**{", odd, "}"))
        return block(f"{name}(", arguments, ")")

    def placeholder(self, variable: Variable, at: Parts) -> str:
        kind = variable.get_type()
        known = isinstance(kind, type) and kind.__module__ == "builtins"
        name = kind.__name__ if known and kind is not object else ""
        if variable._konfig_required == "resolve" and variable.empty():
            return f"konfig.required({name})"
        arguments = [name] if name else []
        if variable._konfig_required == "read":
            arguments.append("required=True")
        if not variable.empty():
            arguments.append(f"default={self.value(variable.get(), at)}")
        return f"konfig.placeholder({', '.join(arguments)})"

    def leaf(self, value: Any, at: Parts) -> str:
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, (set, frozenset)) and value:
            items = ", ".join(sorted(self.leaf(item, at) for item in value))
            is_frozen = isinstance(value, frozenset)
            return f"frozenset({{{items}}})" if is_frozen else f"{{{items}}}"
        if isinstance(value, os.PathLike):
            self.imports.add_real("pathlib")
            return f"pathlib.{type(value).__name__}({os.fspath(value)!r})"
        union = getattr(type(value), "__konfig_union__", None)
        if union is not None:
            return " | ".join(self.leaf(side, at) for side in union(value))
        symbol = getattr(type(value), "__konfig_symbol__", None)
        if symbol is not None:
            return self.imports.name_of(symbol(value)) or repr(value)
        if isinstance(value, type) and value.__module__ == "builtins":
            return value.__qualname__
        plain = (bool, int, float, complex, str, bytes, slice, set, frozenset)
        if value is None or isinstance(value, plain):
            return repr(value)
        if value is ...:
            return "..."
        raise TypeError(
            f"{expression(at)} of type {type(value).__name__} cannot be written as "
            "Python source."
        )


def _indented(line: str) -> str:
    return re.sub(r"(?m)^", "    ", line) + "\n"


class _Imports:
    """Collects the modules that a source names, each under a name of its own."""

    def __init__(self) -> None:
        own = ("cfg", "konfig", "get_config")
        self._taken = {*own, *dir(builtins), *keyword.kwlist}
        self._modules: dict[str, str] = {}
        self._real: set[str] = set()

    def new_name(self, wanted: str) -> str:
        """Return a name like `wanted` that nothing else has."""
        name = first = wanted if wanted.isidentifier() else "value"
        count = 1
        while name in self._taken:
            count += 1
            name = f"{first}_{count}"
        self._taken.add(name)
        return name

    def add_real(self, module: str) -> None:
        """Import a module for real, under its own name."""
        self._real.add(module)
        self._taken.add(module)

    def name_of(self, qualname: str) -> str | None:
        """Return the expression for a symbol; None if no import can name it."""
        try:
            module, attributes = split_qualname(qualname)
        except ValueError:
            return None
        if attributes is None and not _is_module(module):
            module, _, attributes = module.rpartition(".")
        parts = [*module.split("."), *(attributes or "").split(".")]
        if not module or not all(map(_is_name, filter(None, parts))):
            return None
        name = self._module_name(module)
        return f"{name}.{attributes}" if attributes else name

    def _module_name(self, module: str) -> str:
        if module not in self._modules:
            alias = display_name(module)
            short = module.rpartition(".")[2] if "." in alias else alias
            self._modules[module] = self.new_name(short)
        return self._modules[module]

    def text(self) -> str:
        """Return the import statements, at the top of the source."""
        lines = [f"import {module}" for module in sorted(self._real)]
        lines += [""] if lines else []
        lines += ["from kauldron import konfig", ""]
        installed = [m for m in self._modules if _is_installed(m)]
        others = [m for m in self._modules if m not in installed]
        for modules, arguments in ((installed, ""), (others, "lazy=True")):
            if modules:
                lines.append(f"with konfig.imports({arguments}):")
                lines += sorted(f"    {self._statement(m)}" for m in modules)
                lines.append("")
        return "\n".join(lines)

    def _statement(self, module: str) -> str:
        name = self._modules[module]
        package, _, last = module.rpartition(".")
        suffix = "" if name == last else f" as {name}"
        start = f"from {package} " if package else ""
        return f"{start}import {last}{suffix}"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _is_installed(module: str) -> bool:
    return _is_module(module.split(".")[0])
