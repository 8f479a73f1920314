"""A config with its references evaluated, each field once."""

from __future__ import annotations

import contextlib
from typing import Any

from kauldron.konfig.node import Key, Node, raw_fields
from kauldron.konfig.normalizing import LEAF_TYPES
from kauldron.konfig.references import is_reference


class Reader:
    """Reads nodes and lists, remembering what each reference evaluated to.

    A `ref_fn` that makes a new node whenever it is read gives the same node to all
    passes over a config that use one reader.
    """

    def __init__(self) -> None:
        # By (id of the container, key): the container, to keep it alive, and the value.
        self._seen: dict[tuple[int, Key], tuple[Any, Any]] = {}

    def field(self, node: Node, key: Key) -> Any:
        """The value of a field.

        Raises:
          Exception: Whatever evaluating a reference raises.
        """
        raw = raw_fields(node)[key]
        if type(raw) in LEAF_TYPES or not is_reference(raw):
            return raw
        place = (id(node), key)
        if place not in self._seen:
            self._seen[place] = (node, node[key])
        return self._seen[place][1]

    def item(self, holder: Any, index: int, owner: Node | None) -> Any:
        """An item of a list or tuple that is stored in `owner`.

        What was appended to a stored list (a proxy, a plain dict) is converted as if
        it had been assigned.
        """
        raw = holder[index]
        if type(raw) in LEAF_TYPES or isinstance(raw, Node):
            return raw
        if type(raw) in (list, tuple) or owner is None:
            return raw
        place = (id(holder), index)
        if place not in self._seen:
            value = raw.get() if is_reference(raw) else raw
            with contextlib.suppress(ValueError):  # real objects stay what they are
                value = owner._konfig_normalized(value, index)  # pyright: ignore
            self._seen[place] = (holder, value)
        return self._seen[place][1]
