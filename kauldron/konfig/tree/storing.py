"""What a config accepts, how it is stored, and how nodes are filled with it."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import ml_collections
from ml_collections import FieldReference

from kauldron.konfig.symbols import normalize_qualname
from kauldron.konfig.tree.copying import start_from_defaults
from kauldron.konfig.tree.history import SetEvent, short_repr
from kauldron.konfig.tree.node import (
    CONST_KEY,
    ID_KEY,
    LEAF_TYPES,
    QUALNAME_KEY,
    Key,
    Node,
    remember_parent,
)
from kauldron.konfig.tree.placeholders import Variable
from kauldron.konfig.tree.references import PathReference
from kauldron.path_grammar import parse


class Unconfigurable(Exception):
    """A value cannot be part of a config.

    Attributes:
      value: The value.
      parts: Where it is, below the value that was to be stored; innermost first.
    """

    def __init__(self, value: Any, reason: str = "") -> None:
        super().__init__(value, reason)
        self.value = value
        self.reason = reason
        self.parts: list[Key] = []


class Filling:
    """Fills the nodes of one constructor call or write.

    The nodes are of class `node_type` and were created by `event`. If `with_defaults`,
    they start from the registered default values; if `strict`, real objects are
    refused. What is saved as `{"__ref__": path}` is a reference from `references_from`.
    """

    def __init__(
        self,
        node_type: type[Node],
        event: SetEvent | None,
        *,
        with_defaults: bool = True,
        strict: bool = True,
        references_from: Node | None = None,
    ) -> None:
        self.node_type = node_type
        self.event = event
        self.with_defaults = with_defaults
        self.strict = strict
        self.references_from = references_from
        self.by_id: dict[Any, Node] = {}  # the nodes with an `__id__`

    def make_node(self, mapping: Mapping[Any, Any]) -> Node:
        """Return the node for a plain mapping; one per `__id__`."""
        if ID_KEY in mapping and mapping[ID_KEY] in self.by_id:
            return self.by_id[mapping[ID_KEY]]
        node = self.node_type.__new__(self.node_type)
        Node.__init__(node)
        self.fill(node, mapping)
        return node

    def reference(self, mapping: Mapping[Any, Any]) -> Any:
        """Return the reference that a mapping stands for; None if it is a dict."""
        if self.references_from is None or mapping.keys() != {REF_KEY}:
            return None
        reference: Any = PathReference(self.references_from)
        for part in parse(mapping[REF_KEY]):
            reference = reference[part]
        return reference

    def fill(self, node: Node, mapping: Any) -> None:
        """Store the items of a mapping in an empty node."""
        if not is_mapping(mapping):
            raise TypeError(f"A config is made from a mapping, not {mapping!r}.")
        node.__dict__["_konfig_origin"] = self.event
        items = stored_items(mapping)
        if ID_KEY in mapping:
            self.by_id[mapping[ID_KEY]] = node
            items = ((key, value) for key, value in items if key != ID_KEY)
        if QUALNAME_KEY in mapping:
            items = call_items(items)
        if isinstance(mapping, Node):  # it had its default values when it was made
            self._store(node, items, node._fields)
            node.__dict__["_locked"] = mapping.is_locked
            node.__dict__["_type_safe"] = mapping.is_type_safe
            return
        default = default_values_of(mapping.get(QUALNAME_KEY))
        if default is None or not self.with_defaults:
            self._store(node, items, node._fields)
        else:
            start_from_defaults(node, default)
            given = self._store(node, items, {})
            node._konfig_merge(given, "init")  # pyright: ignore

    def _store(self, node: Node, items: Any, fields: dict[Any, Any]) -> dict[Any, Any]:
        """Put items into `fields`, as `node` will hold them."""
        for key, value in items:
            key = plain_key(key)
            if type(value) not in LEAF_TYPES:
                try:
                    value = normalize(value, node, self)
                except Unconfigurable as error:
                    error.parts.append(key)
                    raise
            fields[key] = value
        return fields


def normalize(value: Any, owner: Node | None, filling: Filling) -> Any:
    """Return the form in which `owner` stores `value`; real objects are refused."""
    kind = type(value)
    if kind in LEAF_TYPES:
        return value
    if isinstance(value, Node):
        if owner is not None:
            remember_parent(value, owner)
        return value
    if kind is list or kind is tuple:
        return kind(_normalize_items(value, owner, filling))
    if isinstance(value, FieldReference):
        if isinstance(value, Variable):
            _normalize_variable(value, owner, filling)
        return value
    if isinstance(value, (Mapping, ml_collections.ConfigDict)):
        reference = filling.reference(value)
        if reference is not None:
            return reference
        node = filling.make_node(value)
        if owner is not None:
            remember_parent(node, owner)
        return node
    if kind is set or kind is frozenset:
        return kind(_normalize_set_item(item, owner, filling) for item in value)
    return _normalize_other(value, owner, filling)


def _normalize_items(value: Any, owner: Node | None, filling: Filling) -> list[Any]:
    items = []
    for index, item in enumerate(value):
        if type(item) not in LEAF_TYPES:
            try:
                item = normalize(item, owner, filling)
            except Unconfigurable as error:
                error.parts.append(index)
                raise
        items.append(item)
    return items


def _normalize_set_item(item: Any, owner: Node | None, filling: Filling) -> Any:
    if hasattr(type(item), "__konfig_symbol__") or (
        isinstance(item, enum.Enum) and enum_const(item)
    ):
        return item  # nodes are not hashable, the symbol itself is
    return normalize(item, owner, filling)


def _normalize_variable(value: Variable, owner: Node | None, filling: Filling) -> None:
    held = value._konfig_value
    if type(held) not in LEAF_TYPES:
        value.set(normalize(held, owner, filling), type_safe=False)
    if owner is not None:
        remember_parent(value, owner)


def _normalize_other(value: Any, owner: Node | None, filling: Filling) -> Any:
    """Normalize values that are rarely given."""
    if hasattr(type(value), "__as_konfig__"):
        plain = value.__as_konfig__()
    elif isinstance(value, enum.Enum):
        plain = enum_const(value)
    elif _is_numpy_scalar(value):
        plain = _python_scalar(value)
    elif isinstance(value, _PLAIN_TYPES):
        return value
    elif type(value) is functools.partial:
        plain = _partial_node(value)
    elif _is_config_args(value):
        plain = dataclasses.asdict(value)
    elif filling.strict:
        raise Unconfigurable(value)
    else:
        return value
    return plain if plain is value else normalize(plain, owner, filling)


# ------------------------------------------------------------------------------------
# Conversions to plain values
# ------------------------------------------------------------------------------------


def enum_const(value: enum.Enum) -> dict[str, str]:
    """Return the `__const__` node of an enum member."""
    kind = type(value)
    name = value.name
    if "<locals>" in kind.__qualname__:
        raise Unconfigurable(value, "its class is local to a function")
    if name not in kind.__members__:
        raise Unconfigurable(value, "it is a combination of enum members")
    return {CONST_KEY: f"{kind.__module__}:{kind.__qualname__}.{name}"}


def _is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, "generic", ()))


def _python_scalar(value: Any) -> Any:
    plain = value.item()
    if type(plain) not in LEAF_TYPES:  # dates, structured records
        raise Unconfigurable(value)
    return plain


def _is_config_args(value: Any) -> bool:
    return type(value).__name__ == "ConfigArgs" and dataclasses.is_dataclass(value)


def _partial_node(value: functools.partial[Any]) -> dict[str, Any]:
    arguments = (value.func, *value.args)
    return {
        QUALNAME_KEY: "functools:partial",
        **{str(index): argument for index, argument in enumerate(arguments)},
        **value.keywords,
    }


_PLAIN_TYPES = (int, float, str, bytes, complex, os.PathLike)  # and subclasses


# ------------------------------------------------------------------------------------
# Error messages
# ------------------------------------------------------------------------------------


def unconfigurable_message(error: Unconfigurable, place: str) -> str:
    """Name the place, the object, and the likely reasons."""
    value = error.value
    lines = [
        f"Cannot set {place} to {short_repr(value, 40)} of type "
        f"{type(value).__module__}.{type(value).__qualname__}: configs hold plain "
        "values and calls that are not executed yet, not real objects."
    ]
    if error.reason:
        lines.append(f"Reason: {error.reason}.")
    return "\n".join(lines + [f"- {hint}" for hint in _hints(value)])


def _hints(value: Any) -> list[str]:
    """Return what its author may have meant."""
    notebook = "In a notebook, wrap the assignment in `with konfig.mock_modules():`."
    if hasattr(value, "__array__") and not isinstance(value, type):
        return [
            "Write the numbers as a list, or name a function that makes the array, of a "
            "module that is imported inside `with konfig.imports():`.",
            notebook,
        ]
    if "<" in getattr(value, "__qualname__", ""):  # a lambda, or inside a function
        return [
            "Define it at the top of a module, import the module inside "
            "`with konfig.imports():`, and name it from there.",
            notebook,
        ]
    hints = [
        "Was its module imported outside of `with konfig.imports():`?",
        notebook,
    ]
    target = value if hasattr(value, "__qualname__") else type(value)
    module = _module_that_has(target)
    if module is not None:
        hints.append(
            f"If you imported {target.__name__!r} directly, import its module "
            f"instead: `import {module}`, then `{module}.{target.__name__}`."
        )
    return hints


def _module_that_has(target: Any) -> str | None:
    """Return the outermost module with a symbol: `optax`, not `optax._src.base`."""
    names = (getattr(target, "__module__", None) or "").split(".")
    for count in range(1, len(names) + 1):
        module = sys.modules.get(".".join(names[:count]))
        if getattr(module, getattr(target, "__name__", ""), None) is target:
            return ".".join(names[:count])
    return None


def is_mapping(value: Any) -> bool:
    """Return whether a value is stored as a node."""
    return isinstance(value, (Mapping, ml_collections.ConfigDict))


def stored_items(mapping: Any) -> Iterator[tuple[Key, Any]]:
    """Yield the items of any mapping, references not evaluated."""
    if isinstance(mapping, Node):
        yield from list(mapping._fields.items())
    elif isinstance(mapping, ml_collections.FrozenConfigDict):
        yield from stored_items(mapping.as_configdict())
    elif isinstance(mapping, ml_collections.ConfigDict):
        yield from mapping.items(preserve_field_references=True)
    elif hasattr(mapping, "keys"):
        yield from ((key, mapping[key]) for key in mapping.keys())  # noqa: SIM118
    else:
        yield from mapping  # pairs, as dict.update accepts them


_defaults: dict[str, Node] = {}


def default_values_of(qualname: Any) -> Node | None:
    """Return the registered defaults of a symbol. Not to be modified."""
    if not _defaults or not isinstance(qualname, str):
        return None
    return _defaults.get(normalize_qualname(qualname))


# ------------------------------------------------------------------------------------
# Keys
# ------------------------------------------------------------------------------------

RAW_PREFIX = "__raw__="
REF_KEY = "__ref__"


def plain_key(key: Any) -> Key:
    """Return the key that is meant: JSON's text for `1` is 1, `("a", "b")` is `"a.b"`.

    >>> plain_key("__raw__=1.5")
    1.5
    """
    if type(key) is str:
        return _decoded(key) if key.startswith(RAW_PREFIX) else key
    if isinstance(key, tuple) and key and all(isinstance(part, str) for part in key):
        return ".".join(key)
    return key


def _decoded(key: str) -> Key:
    text = key.removeprefix(RAW_PREFIX)
    for read in (ast.literal_eval, float):  # float reads inf and nan
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return key  # not one of ours


def call_items(items: Iterable[tuple[Key, Any]]) -> Iterable[tuple[Key, Any]]:
    """Return the items of a call: its symbol, positional arguments, the others."""
    symbol, positional, named = [], {}, []
    for key, value in items:
        key = plain_key(key)
        if type(key) is int:
            if key < 0:
                raise ValueError(f"Positional arguments count from 0, got {key}.")
            key = str(key)
        if key == QUALNAME_KEY:
            symbol.append((key, value))
        elif isinstance(key, str) and key.isdecimal():
            if int(key) in positional:
                raise ValueError(f"Positional argument {key} is given twice.")
            positional[int(key)] = value
        else:
            named.append((key, value))
    return [*symbol, *((str(i), positional[i]) for i in sorted(positional)), *named]
