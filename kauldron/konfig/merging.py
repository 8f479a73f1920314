"""How two configs become one: the rule behind `update`, `|` and default values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ml_collections

from kauldron.konfig.node import CONST_KEY, QUALNAME_KEY, Key, Node, raw_fields
from kauldron.konfig.qualnames import same_qualname


def is_mapping(value: Any) -> bool:
    """Whether a value is stored as a node."""
    return isinstance(value, (Mapping, ml_collections.ConfigDict))


def stored_items(mapping: Any) -> Iterator[tuple[Key, Any]]:
    """The items of any mapping, references not evaluated."""
    if isinstance(mapping, Node):
        yield from list(raw_fields(mapping).items())
    elif isinstance(mapping, ml_collections.FrozenConfigDict):
        yield from stored_items(mapping.as_configdict())
    elif isinstance(mapping, ml_collections.ConfigDict):
        yield from mapping.items(preserve_field_references=True)
    elif hasattr(mapping, "keys"):
        yield from ((key, mapping[key]) for key in mapping.keys())  # noqa: SIM118
    else:
        yield from mapping  # pairs, as dict.update accepts them


def merges_into(old: Any, new: Any) -> bool:
    """Whether `new` is merged into the stored `old` instead of replacing it.

    Two dicts are merged. A node is replaced by the node of another symbol: fields of
    two classes in one call would make no sense.
    """
    if not isinstance(old, Node) or not is_mapping(new):
        return False
    if CONST_KEY in new or CONST_KEY in raw_fields(old):
        return False
    return QUALNAME_KEY not in new or same_qualname(
        new[QUALNAME_KEY], raw_fields(old).get(QUALNAME_KEY)
    )
