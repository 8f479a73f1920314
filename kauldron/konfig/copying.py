"""Copies of nodes: shallow, deep, pickled, and the start from default values."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

from kauldron.konfig.node import Node, nodes_below, raw_fields, remember_parent
from kauldron.konfig.rerooting import root_was_copied
from kauldron.konfig.set_events import field_events, node_origin

N = TypeVar("N", bound=Node)


def _new_like(node: N) -> N:
    """An empty node of the same class, with the same origin, history and locks."""
    new = type(node).__new__(type(node))
    Node.__init__(new)
    state = node.__dict__
    history = state["_konfig_history"]
    new.__dict__.update(
        {
            **{k: v for k, v in state.items() if not k.startswith("_konfig_")},
            "_fields": {},
            "_konfig_origin": state["_konfig_origin"],
            "_konfig_history": None if history is None else dict(history),
        }
    )
    return new


def shallow_copy(node: N) -> N:
    """A new node with the same children; its lists are copied."""
    new = _new_like(node)
    for key, value in raw_fields(node).items():
        new._fields[key] = list(value) if type(value) is list else value
        remember_parent(value, new)
    return new


def deep_copy(node: N, memo: dict[int, Any]) -> N:
    """An independent tree: sharing, cycles and references are reproduced in it."""
    new = _new_like(node)
    _fill_with_copies(new, node, memo)
    return new


def _fill_with_copies(new: Node, node: Node, memo: dict[int, Any]) -> None:
    root_was_copied(node, new, memo)
    for key, value in raw_fields(node).items():
        copied = copy.deepcopy(value, memo)
        new._fields[key] = copied
        remember_parent(copied, new)


def start_from_defaults(node: Node, default: Node) -> None:
    """Fills an empty node with a deep copy of registered default values."""
    created = node_origin(node)
    _fill_with_copies(node, default, {})
    if created is None:
        return
    event = created._replace(kind="default")
    for copied in nodes_below(node):
        copied.__dict__.update(_konfig_origin=event, _konfig_history=None)
    events = {key: field_events(node, key) for key in raw_fields(node)}
    node.__dict__.update(_konfig_origin=created, _konfig_history=events)


# ------------------------------------------------------------------------------------
# Pickle
# ------------------------------------------------------------------------------------


def pickled_state(node: Node) -> dict[str, Any]:
    """What is pickled. Where fields were set stays behind."""
    return {
        "_fields": raw_fields(node),
        "_locked": node.is_locked,
        "_type_safe": node.is_type_safe,
    }


def restore_state(node: Node, state: Mapping[str, Any]) -> None:
    """The inverse of `pickled_state`."""
    Node.__init__(node)
    # The dict itself, not a copy: with cycles it may be filled after this call.
    node.__dict__.update(
        _fields=state["_fields"],
        _locked=state["_locked"],
        _type_safe=state["_type_safe"],
    )
    remember_parent(list(state["_fields"].values()), node)
