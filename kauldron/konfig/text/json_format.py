"""Configs as JSON text, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import FieldReference

from kauldron.errors import a_type
from kauldron.konfig.text.leaves import call_node, call_of, const_of
from kauldron.konfig.tree.node import (
    CONST_KEY,
    ID_KEY,
    Key,
    Node,
    Unreadable,
    Walk,
    expression,
    raw_value,
)
from kauldron.konfig.tree.references import PathReference
from kauldron.konfig.tree.storing import RAW_PREFIX, REF_KEY
from kauldron.path_grammar import format_path


def dumps(node: Node, *, keep_refs: bool = False, **json_dumps_kwargs: Any) -> str:
    """Return the JSON text of a config; see `ConfigDict.to_json`."""
    return json.dumps(to_plain(node, keep_refs=keep_refs), **json_dumps_kwargs)


def to_plain(value: Any, *, keep_refs: bool = False) -> Any:
    """Return the dicts, lists and values that are written as JSON."""
    writer = _Writer(value, keep_refs)
    plain = writer.plain(value)
    writer.number_shared()
    return plain


def load(text_or_path: Any) -> Any:
    """Return the parsed JSON of a text or file, which must be an object."""
    text = text_or_path
    if isinstance(text, os.PathLike) or not text.lstrip().startswith(("{", "[")):
        text = Path(text).read_text(encoding="utf-8")
    loaded = json.loads(text)
    if not isinstance(loaded, dict):
        raise ValueError(f"A config is a JSON object, not {a_type(loaded)}.")
    return loaded


class _Writer:
    """Writes one config, every node in full at each of its places."""

    def __init__(self, root: Any, keep_refs: bool) -> None:
        self.root = root
        self.keep_refs = keep_refs
        self.walk = Walk()
        # What each node was written as, by its id, in the order of the first places.
        self.written: dict[int, list[dict[str, Any]]] = {}

    def number_shared(self) -> None:
        """Put an `__id__` into the nodes that were written more than once."""
        shared = [places for places in self.written.values() if len(places) > 1]
        for number, places in enumerate(shared):
            for plain in places:
                plain[ID_KEY] = number

    def plain(self, value: Any) -> Any:
        if value is None or type(value) in (int, float, bool, str):
            return value
        if isinstance(value, Node):
            return self.node(value)
        if type(value) in (list, tuple):
            return [plain for _, plain in self.inside(value)]
        return self.other(value)

    def node(self, node: Node) -> dict[str, Any]:
        result: dict[str, Any] = {}
        self.written.setdefault(id(node), []).append(result)
        for key, plain in self.inside(node):
            result[self.key_text(key)] = plain
        return result

    def key_text(self, key: Key) -> str:
        if isinstance(key, str):
            return key
        if isinstance(key, (int, float)):
            return f"{RAW_PREFIX}{key!r}"
        raise TypeError(
            f"In {expression(self.walk.parts(-1))}: the key {key!r} of type "
            f"{type(key).__name__} has no JSON form."
        )

    def inside(self, container: Any) -> Iterator[tuple[Key, Any]]:
        """Yield the keys of a node or list, and what their values are written as."""
        for key, value in self.walk.inside(container):
            raw = raw_value(container, key) if self.keep_refs else None
            path = self.path_followed(raw)
            if path is not None:
                yield key, {REF_KEY: path}
            elif isinstance(value, Unreadable):
                raise value.error
            else:
                yield key, self.plain(value)

    def path_followed(self, raw: Any) -> str | None:
        """Return the path to write for a reference, if it follows one from the root."""
        if not isinstance(raw, PathReference):
            return None
        parts = raw._konfig_pure_path(self.root)
        return None if parts is None else format_path(parts)

    def other(self, value: Any) -> Any:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, FieldReference):
            return self.plain(value.get())
        call = call_of(value)
        if call is not None:
            symbol, arguments = call
            return call_node(symbol, *(self.plain(a) for a in arguments))
        symbol = const_of(value)
        if symbol is not None:
            return {CONST_KEY: symbol}
        if isinstance(value, (int, float, str)):  # subclasses
            return value
        raise TypeError(
            f"{expression(self.walk.parts())} is of type {type(value).__module__}."
            f"{type(value).__qualname__}, which has no JSON form."
        )
