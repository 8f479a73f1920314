"""The helpers that users of `ml_collections.ConfigDict` expect on a config.

They behave as there, and also reach nodes inside lists, keep working on configs with
cycles, and leave the config as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Self

import ml_collections

from kauldron.konfig.node import Key, Node, nodes_below, raw_fields, remember_parent
from kauldron.konfig.placeholders import Variable, is_shared
from kauldron.konfig.references import PathReference, is_reference


class MlCollectionsApi(Node):
    """Locks, type checks, `get_ref` and conversions."""

    def lock(self) -> Self:
        """Forbids new fields and deletions, here and below.

        Returns:
          The config itself.
        """
        for node in nodes_below(self):
            node.__dict__["_locked"] = True
        return self

    def unlock(self) -> Self:
        """Allows new fields again, here and below.

        Returns:
          The config itself.
        """
        for node in nodes_below(self):
            node.__dict__["_locked"] = False
        return self

    @contextlib.contextmanager
    def unlocked(self) -> Iterator[Self]:
        """Inside the block, fields may be added here and below.

        What is locked stays so afterwards; new nodes are locked if this one is.
        """
        nodes = list(nodes_below(self))
        before = {id(node): node.is_locked for node in nodes}
        try:
            yield self.unlock()
        finally:
            for node in nodes_below(self):
                is_locked = before.get(id(node), before[id(self)])
                node.__dict__["_locked"] = is_locked

    @contextlib.contextmanager
    def ignore_type(self) -> Iterator[Self]:
        """Inside the block, fields here and below may change their type."""
        before = [(node, node.__dict__["_type_safe"]) for node in nodes_below(self)]
        for node, _ in before:
            node.__dict__["_type_safe"] = False
        try:
            yield self
        finally:
            for node, type_safe in before:
                node.__dict__["_type_safe"] = type_safe

    def get_type(self, key: Key) -> Any:
        """The type of a field; of a placeholder, the one it was declared with."""
        value = self[key]
        raw = raw_fields(self)[self._konfig_key(key)]
        if is_reference(raw) and raw.get_type() is not object:
            return raw.get_type()
        return type(value)

    def get_ref(self, key: Key) -> Any:
        """A write-through reference: all fields that hold it share one value.

        Args:
          key: The field whose value is to be shared. It becomes one of the holders.

        Returns:
          The reference, to be assigned to other fields.
        """
        value = self[key]
        key = self._konfig_key(key)
        raw = raw_fields(self)[key]
        if is_shared(raw):
            return raw
        declared = object if value is None or is_reference(raw) else type(value)
        declared = Node if isinstance(value, Node) else declared
        shared = Variable(raw, declared)
        remember_parent(shared, self)
        raw_fields(self)[key] = shared
        return shared

    def get_oneway_ref(self, key: Key) -> Any:
        """A read-only reference to a field, like `cfg.ref[key]`."""
        self[key]  # raises if there is no such field
        return PathReference(self)[key]

    def to_dict(
        self, visit_map: Any = None, preserve_field_references: bool = False
    ) -> dict[Key, Any]:
        """Nested plain dicts, lists and values; shared nodes become shared dicts.

        Args:
          visit_map: Dicts already made, by `id` of their node.
          preserve_field_references: Keep the references instead of their values.

        Returns:
          The dict.
        """
        done: dict[int, Any] = {} if visit_map is None else visit_map

        def plain(value: Any) -> Any:
            if is_reference(value):
                return value if preserve_field_references else plain(value.get())
            if isinstance(value, Node):
                if id(value) in done:
                    return done[id(value)]
                result = done[id(value)] = {}
                for key, raw in raw_fields(value).items():
                    read = not preserve_field_references and is_reference(raw)
                    result[key] = plain(value[key] if read else raw)
                return result
            if type(value) in (list, tuple):
                return type(value)([plain(item) for item in value])
            return value

        return plain(self)

    def copy_and_resolve_references(self, visit_map: Any = None) -> Self:
        """A copy of the whole config, with the current values for references.

        Args:
          visit_map: Copies already made, by `id` of their node.

        Returns:
          The copy; shared nodes stay shared, locks are kept.
        """
        done: dict[int, Any] = {} if visit_map is None else visit_map

        def copied(value: Any) -> Any:
            if is_reference(value):
                return copied(value.get())
            if isinstance(value, Node):
                if id(value) in done:
                    return done[id(value)]
                result = done[id(value)] = type(self)()
                for key in raw_fields(value):
                    result[key] = copied(value[key])
                result.__dict__["_locked"] = value.is_locked
                return result
            if type(value) in (list, tuple):
                return type(value)([copied(item) for item in value])
            return value

        return copied(self)

    def eq_as_configdict(self, other: Any) -> bool:
        """Whether the contents are equal, whatever kind of config `other` is."""
        return isinstance(other, ml_collections.ConfigDict) and self == dict(
            other.items(preserve_field_references=True)
        )

    def _konfig_key(self, key: Key) -> Key:
        return key
