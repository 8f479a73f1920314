"""Walks over the leaves and nodes of a config; `flatten` gives them by path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kauldron import path_grammar
from kauldron.konfig.configdict import ConfigDict
from kauldron.konfig.errors import CycleError
from kauldron.konfig.node import Node, expression
from kauldron.konfig.pathing import Parts, children, raw_children


def flatten(cfg: Any) -> dict[str, Any]:
    """All leaves of a config, by path, in order.

    The paths are accepted by `set_by_path` and, after `--cfg.`, on the command line.
    References appear with their current value. Empty dicts, lists and tuples are
    leaves, so that nothing is lost.

    Args:
      cfg: A config, or a plain mapping that could be one.

    Returns:
      From path to leaf. What is called is the leaf `__qualname__`, a constant the leaf
      `__const__`.

    Raises:
      CycleError: The config contains itself.

    Example:
      >>> cfg = ConfigDict({"model": {"__qualname__": "m:Net", "sizes": [8, 4]}})
      >>> flatten(cfg)
      {'model.__qualname__': 'm:Net', 'model.sizes[0]': 8, 'model.sizes[1]': 4}
    """
    return {
        path_grammar.format_path(parts): {} if isinstance(leaf, Node) else leaf
        for parts, leaf in iter_leaves(as_config(cfg))
    }


def as_config(cfg: Any) -> Node:
    """A config as it is; a plain mapping as the config it stands for."""
    return cfg if isinstance(cfg, Node) else ConfigDict(cfg)


def iter_leaves(cfg: Any) -> Iterator[tuple[Parts, Any]]:
    """The paths and values of all leaves, references evaluated.

    Raises:
      CycleError: The config contains itself.
    """
    yield from _leaves(cfg, (), {})


def _leaves(
    value: Any, at: Parts, above: dict[int, Parts]
) -> Iterator[tuple[Parts, Any]]:
    if id(value) in above:
        inner, outer = expression(at), expression(above[id(value)])
        raise CycleError(f"The config contains itself: {inner} is {outer}.")
    below = list(children(value))
    if not below and at:
        yield at, value
    inside = {**above, id(value): at}
    for part, item in below:
        yield from _leaves(item, (*at, part), inside)


def iter_nodes(cfg: Any) -> Iterator[tuple[Parts, Node]]:
    """All nodes at all their places, parents first; references are not followed."""
    yield from _nodes(cfg, (), frozenset())


def _nodes(
    value: Any, at: Parts, above: frozenset[int]
) -> Iterator[tuple[Parts, Node]]:
    if id(value) in above:
        return
    if isinstance(value, Node):
        yield at, value
    inside = above | {id(value)}
    for part, item in raw_children(value):
        yield from _nodes(item, (*at, part), inside)
