"""How nodes are filled from plain mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kauldron.konfig.copying import start_from_defaults
from kauldron.konfig.default_values import default_values_of
from kauldron.konfig.keys import call_items, plain_key
from kauldron.konfig.merging import is_mapping, stored_items
from kauldron.konfig.node import ID_KEY, QUALNAME_KEY, Node, raw_fields
from kauldron.konfig.normalizing import LEAF_TYPES, Unconfigurable, normalize
from kauldron.konfig.set_events import SetEvent, record


def _is_empty(value: Any) -> bool:
    return isinstance(value, Node) and not raw_fields(value)


class Filling:
    """Fills the nodes of one constructor call or write.

    Args:
      node_type: The class of the nodes for plain dicts.
      event: Where they are created.
      with_defaults: Whether nodes start from the registered default values.
      strict: Whether real objects are refused.
    """

    def __init__(
        self,
        node_type: type[Node],
        event: SetEvent | None,
        *,
        with_defaults: bool = True,
        strict: bool = True,
    ) -> None:
        self.node_type = node_type
        self.event = event
        self.with_defaults = with_defaults
        self.strict = strict
        self.by_id: dict[Any, Node] = {}  # the nodes with an `__id__`

    def make_node(self, mapping: Mapping[Any, Any]) -> Node:
        """The node for a plain mapping; one per `__id__`."""
        if ID_KEY in mapping and mapping[ID_KEY] in self.by_id:
            return self.by_id[mapping[ID_KEY]]
        node = self.node_type.__new__(self.node_type)
        Node.__init__(node)
        self.fill(node, mapping)
        return node

    def fill(self, node: Node, mapping: Any) -> None:
        """Stores the items of a mapping in an empty node.

        Raises:
          Unconfigurable: It holds a real object.
        """
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
            for key, value in given.items():
                if isinstance(value, Node) and _is_empty(node._fields.get(key)):
                    record(node, key, value, "init")
                    node._fields[key] = value  # nothing to merge: it stays itself
            node._konfig_merge(given, "init")  # pyright: ignore

    def _store(self, node: Node, items: Any, fields: dict[Any, Any]) -> dict[Any, Any]:
        """Puts items into `fields`, as `node` will hold them."""
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
