"""Configs as JSON text, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import FieldReference

from kauldron.konfig.text.leaves import call_node, call_of, const_of
from kauldron.konfig.tree.node import (
    CONST_KEY,
    ID_KEY,
    Key,
    Node,
    Parts,
    Walk,
    expression,
)
from kauldron.konfig.tree.references import PathReference
from kauldron.konfig.tree.storing import raw_key
from kauldron.path_grammar import format_path, parse

REF_KEY = "__ref__"


def dumps(node: Node, *, keep_refs: bool = False, **json_dumps_kwargs: Any) -> str:
    """Return the JSON text of a config; see `ConfigDict.to_json`."""
    return json.dumps(to_plain(node, keep_refs=keep_refs), **json_dumps_kwargs)


def to_plain(value: Any, *, keep_refs: bool = False) -> Any:
    """Return the dicts, lists and values that are written as JSON."""
    writer = _Writer(value, keep_refs)
    writer.find_shared(value, ())
    return writer.plain(value, ())


def load(text_or_path: Any) -> Any:
    """Return the parsed JSON of a text or file.

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
        self.walk = Walk()
        self.seen: set[int] = set()
        self.shared: set[int] = set()
        self.ids: dict[int, int] = {}

    def inside(self, container: Any, at: Parts) -> Iterator[tuple[Key, Parts, Any]]:
        """Yield the key, path and value of what a node or list holds."""
        for child in self.walk.enter(container, at):
            link = self.link(child.raw)
            if link is None and child.error is not None:
                raise child.error
            yield child.key, (*at, child.part), link or child.value
        self.walk.leave(container)

    def link(self, raw: Any) -> _Link | None:
        """Return how a reference is written as the path it follows, if it can be."""
        if not self.keep_refs or not isinstance(raw, PathReference):
            return None
        parts = raw._konfig_pure_path(self.root)
        return None if parts is None else _Link(format_path(parts))

    def find_shared(self, value: Any, at: Parts) -> None:
        if isinstance(value, Node):
            if id(value) in self.shared:
                return
            if id(value) in self.seen:
                self.shared.add(id(value))  # and, going on, all the nodes below
            self.seen.add(id(value))
        elif type(value) not in (list, tuple):
            return
        for _, place, child in self.inside(value, at):
            self.find_shared(child, place)

    def plain(self, value: Any, at: Parts) -> Any:
        if value is None or type(value) in (int, float, bool, str):
            return value
        if isinstance(value, Node):
            return self.node(value, at)
        if type(value) in (list, tuple):
            items = self.inside(value, at)
            return [self.plain(child, place) for _, place, child in items]
        return self.other(value, at)

    def node(self, node: Node, at: Parts) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if id(node) in self.shared:  # numbered before what is below
            self.ids.setdefault(id(node), len(self.ids))
        for key, place, child in self.inside(node, at):
            try:
                text = raw_key(key)
            except TypeError as error:
                raise TypeError(f"In {expression(at)}: {error}.") from None
            result[text] = self.plain(child, place)
        if id(node) in self.shared:  # after the fields, where it disturbs least
            result[ID_KEY] = self.ids[id(node)]
        return result

    def other(self, value: Any, at: Parts) -> Any:
        if isinstance(value, _Link):
            return {REF_KEY: value.path}
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, FieldReference):
            return self.plain(value.get(), at)
        call = call_of(value)
        if call is not None:
            symbol, arguments = call
            return call_node(symbol, *(self.plain(a, at) for a in arguments))
        symbol = const_of(value)
        if symbol is not None:
            return {CONST_KEY: symbol}
        if isinstance(value, (int, float, str)):  # subclasses
            return value
        raise TypeError(
            f"{expression(at)} is of type {type(value).__module__}."
            f"{type(value).__qualname__}, which has no JSON form."
        )


class _Link(NamedTuple):
    """A reference that is written as the path it follows."""

    path: str


def restore_references(root: Node) -> None:
    """Turn the `{"__ref__": path}` nodes of a loaded config into references."""

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
