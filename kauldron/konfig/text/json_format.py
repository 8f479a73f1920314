"""Configs as JSON text, and back."""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kauldron.konfig.errors import CycleError
from kauldron.konfig.tree.node import (
    CONST_KEY,
    ID_KEY,
    QUALNAME_KEY,
    Key,
    Node,
    Parts,
    Reader,
    expression,
    is_reference,
    path_part,
    raw_key,
)
from kauldron.konfig.tree.references import PathReference
from kauldron.konfig.tree.storing import Unconfigurable, enum_const
from kauldron.path_grammar import format_path, parse

REF_KEY = "__ref__"


def dumps(node: Node, *, keep_refs: bool = False, **json_dumps_kwargs: Any) -> str:
    """The JSON text of a config; see `ConfigDict.to_json`."""
    return json.dumps(to_plain(node, keep_refs=keep_refs), **json_dumps_kwargs)


def to_plain(value: Any, *, keep_refs: bool = False) -> Any:
    """The dicts, lists and values that are written as JSON."""
    writer = _Writer(value, keep_refs)
    writer.find_shared(value, (), None)
    return writer.plain(value, (), None)


def load(text_or_path: Any) -> Any:
    """The parsed JSON of a text or file.

    Raises:
      ValueError: It is not the JSON of an object.
    """
    text = text_or_path
    if isinstance(text, os.PathLike) or not text.lstrip().startswith(("{", "[")):
        text = Path(text).read_text(encoding="utf-8")
    loaded = json.loads(text)
    if not isinstance(loaded, dict):
        raise ValueError(f"A config is a JSON object, not a {type(loaded).__name__}.")
    return loaded


class _Writer:
    """Writes one config: first finds the shared nodes, then writes them in full."""

    def __init__(self, root: Any, keep_refs: bool) -> None:
        self.root = root
        self.keep_refs = keep_refs
        self.reader = Reader()
        self.open: dict[int, Parts] = {}  # the nodes and lists around the current one
        self.seen: set[int] = set()
        self.shared: set[int] = set()
        self.ids: dict[int, int] = {}

    # --------------------------------------------------------------------------------
    # First pass
    # --------------------------------------------------------------------------------

    def children(
        self, value: Any, owner: Node | None
    ) -> Iterator[tuple[Key, Key, Any]]:
        """Key, part of the path and value of what is inside."""
        if isinstance(value, Node):
            for key in value._fields:
                yield key, path_part(value, key), self.field(value, key)
        else:
            for index in range(len(value)):
                yield index, index, self.reader.item(value, index, owner)

    def field(self, node: Node, key: Key) -> Any:
        raw = node._fields[key]
        if self.keep_refs and isinstance(raw, PathReference):
            parts = raw._konfig_pure_path(self.root)
            if parts is not None:
                return _Link(format_path(parts))
        return self.reader.field(node, key)

    def find_shared(self, value: Any, parts: Parts, owner: Node | None) -> None:
        if not isinstance(value, (Node, list, tuple)):
            return
        if id(value) in self.open:
            raise CycleError(
                f"{expression(parts)} is {expression(self.open[id(value)])} itself: a "
                "config that contains itself cannot be written as JSON."
            )
        owner = value if isinstance(value, Node) else owner
        if owner is value:
            if id(value) in self.shared:
                return
            if id(value) in self.seen:
                self.shared.add(id(value))  # and, going on, all the nodes below
            self.seen.add(id(value))
        self.open[id(value)] = parts
        for _, part, child in self.children(value, owner):
            self.find_shared(child, (*parts, part), owner)
        del self.open[id(value)]

    # --------------------------------------------------------------------------------
    # Second pass
    # --------------------------------------------------------------------------------

    def plain(self, value: Any, parts: Parts, owner: Node | None) -> Any:
        if value is None or type(value) in (int, float, bool, str):
            return value
        if isinstance(value, _Link):
            return {REF_KEY: value.path}
        if isinstance(value, Node):
            return self.node(value, parts)
        if type(value) in (list, tuple):
            return [
                self.plain(child, (*parts, part), owner)
                for _, part, child in self.children(value, owner)
            ]
        return self.other(value, parts, owner)

    def node(self, node: Node, parts: Parts) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if id(node) in self.shared:
            result[ID_KEY] = self.ids.setdefault(id(node), len(self.ids))
        for key, part, child in self.children(node, node):
            place = (*parts, part)
            try:
                text = raw_key(key)
            except TypeError as error:
                raise TypeError(f"In {expression(parts)}: {error}.") from None
            result[text] = self.plain(child, place, node)
        if ID_KEY in result:  # after the fields, where it disturbs least
            result[ID_KEY] = result.pop(ID_KEY)
        return result

    def other(self, value: Any, parts: Parts, owner: Node | None) -> Any:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if is_reference(value):
            return self.plain(value.get(), parts, owner)
        call = _as_call(value)
        if call is not None:
            symbol, *arguments = call
            plain = [self.plain(a, parts, owner) for a in arguments]
            return {QUALNAME_KEY: symbol, **{str(i): a for i, a in enumerate(plain)}}
        symbol = _const_name(value)
        if symbol is not None:
            return {CONST_KEY: symbol}
        if isinstance(value, (int, float, str)):  # subclasses
            return value
        raise TypeError(
            f"{expression(parts)} is of type {type(value).__module__}."
            f"{type(value).__qualname__}, which has no JSON form."
        )


class _Link:
    """A reference that is written as the path it follows."""

    def __init__(self, path: str) -> None:
        self.path = path


def _as_call(value: Any) -> list[Any] | None:
    """The symbol and arguments that make a value which JSON has no form for."""
    match value:
        case set() | frozenset():
            kind = "set" if isinstance(value, set) else "frozenset"
            return [f"builtins:{kind}", _in_order(value)]
        case bytes():
            return ["builtins:bytes.fromhex", value.hex()]
        case slice():
            return ["builtins:slice", value.start, value.stop, value.step]
        case complex():
            return ["builtins:complex", value.real, value.imag]
    if hasattr(type(value), "__konfig_union__"):
        return ["operator:or_", *value.__konfig_union__()]
    return None


def _in_order(values: set[Any] | frozenset[Any]) -> list[Any]:
    """The same order in every process, so that equal configs have equal texts."""
    return sorted(values, key=lambda value: (type(value).__name__, repr(value)))


def _const_name(value: Any) -> str | None:
    if value is ...:
        return "builtins:Ellipsis"
    if isinstance(value, enum.Enum):
        try:
            return enum_const(value)[CONST_KEY]
        except Unconfigurable:
            return None
    if isinstance(value, type) and value.__module__ == "builtins":
        return f"builtins:{value.__qualname__}"  # one side of a union
    symbol = getattr(type(value), "__konfig_symbol__", None)
    return None if symbol is None else symbol(value)


def restore_references(root: Node) -> None:
    """Turns the `{"__ref__": path}` nodes of a loaded config into references."""

    def restored(value: Any) -> Any:
        if isinstance(value, Node):
            fields = value._fields
            if fields.keys() == {REF_KEY}:
                reference: Any = PathReference(root)
                for part in parse(fields[REF_KEY]):
                    reference = reference[part]
                return reference
            for key, child in list(fields.items()):
                if isinstance(child, (Node, list, tuple)):
                    fields[key] = restored(child)
        elif type(value) in (list, tuple):
            return type(value)(restored(item) for item in value)
        return value

    restored(root)
