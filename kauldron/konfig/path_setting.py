"""Sets places of a config by path. Command line overrides and sweeps come through here."""

from __future__ import annotations

import copy
from typing import Any

from kauldron import path_grammar
from kauldron.konfig.errors import key_error
from kauldron.konfig.node import Node, expression, is_call, positional_count
from kauldron.konfig.pathing import (
    Parts,
    Path,
    child,
    find_paths,
    get_by_path,
    has_child,
    has_wildcard,
    key_of,
    path_parts,
    raise_not_found,
    shown,
)
from kauldron.konfig.set_events import record
from kauldron.path_grammar import Part, Wildcard


def set_by_path(cfg: Any, path: Path, value: Any) -> list[str]:
    """Sets the place, or all places, that a path names.

    The last name may be new, all others must exist. With wildcards only places that
    exist are set, and there must be at least one. Items of tuples can be set too: the
    tuple is replaced. The config's own rules for values and types apply.

    Args:
      cfg: The config to change. Unchanged if an error is raised.
      path: Text or parts.
      value: What `cfg.name = value` accepts.

    Returns:
      The paths that were set.

    Raises:
      KeyError: A part before the last was not found, an index is out of range, or
        nothing matches the wildcards.
      TypeError, ValueError: The config refuses the value, or the path is malformed.

    Example:
      >>> from kauldron import konfig
      >>> cfg = konfig.ConfigDict({"a": {"n": 1}, "b": {"n": 2}})
      >>> set_by_path(cfg, "*.n", 7)
      ['a.n', 'b.n']
      >>> cfg.b.n
      7
    """
    if hasattr(type(cfg), "set_by_path"):  # ModuleConfigDict: still to be built
        return cfg.set_by_path(path, value)
    targets = find_targets(cfg, path_parts(path))
    if len(targets) > 1:  # all or nothing: try on a copy first
        trial = copy.deepcopy(cfg)
        for target in targets:
            assign(trial, target, value)
    for target in targets:
        assign(cfg, target, value)
    return [path_grammar.format_path(target) for target in targets]


def find_targets(cfg: Any, parts: Parts) -> list[Parts]:
    """The places that an assignment to a path writes to.

    Raises:
      KeyError: As in `set_by_path`.
      ValueError: The path is empty or ends in a wildcard.
    """
    if not parts:
        raise ValueError("An empty path names the whole config; it cannot be set.")
    if not has_wildcard(parts):
        _check_settable(cfg, parts)
        return [parts]
    if isinstance(parts[-1], Wildcard):
        raise ValueError(f"{shown(parts)}: the last part cannot be a wildcard.")
    found = find_paths(cfg, parts)
    if not found:
        raise key_error(
            f"Nothing matches {shown(parts)}. Wildcards match fields that exist; a new "
            "field is added by its full path."
        )
    # A match inside another match would be overwritten with it.
    matches = set(found)
    return [t for t in found if not any(t[:n] in matches for n in range(len(t)))]


def assign(cfg: Any, parts: Parts, value: Any) -> None:
    """Sets one place, which `find_targets` has found."""
    parent = get_by_path(cfg, parts[:-1])
    last: Any = parts[-1]
    if isinstance(parent, Node):
        parent[key_of(parent, last)] = value
    elif isinstance(parent, list):
        node, keys = _holder(cfg, parts)
        value = node._konfig_normalized(value, *keys)
        record(node, keys, value)
        parent[last] = value
    else:
        index = last % len(parent)
        assign(cfg, parts[:-1], (*parent[:index], value, *parent[index + 1 :]))


def _holder(cfg: Any, parts: Parts) -> tuple[Any, tuple[Any, ...]]:
    """The innermost node above a place, and the keys that lead from it to the place."""
    value, node, keys = cfg, cfg, ()
    part: Any
    for part in parts:
        if isinstance(value, Node):
            node, keys = value, (key_of(value, part),)
        else:
            keys = (*keys, part % len(value))
        value = child(value, part)
    return node, keys


def _check_settable(cfg: Any, parts: Parts) -> None:
    """Raises unless the last part can be set below the others."""
    parent = cfg
    for depth, part in enumerate(parts[:-1]):
        if not has_child(parent, part):
            raise_not_found(parts, depth, parent)
        below = child(parent, part)
        if isinstance(below, Node) and child(parent, part) is not below:
            raise ValueError(
                f"{expression(parts[: depth + 1])} is computed anew at each read; set "
                "it as a whole, or what it is computed from."
            )
        parent = below
    if not _can_hold(parent, parts[-1]):
        raise_not_found(parts, len(parts) - 1, parent)


def _can_hold(parent: Any, part: Part) -> bool:
    if not isinstance(parent, Node):
        return has_child(parent, part)
    if is_call(parent) and isinstance(part, int):
        count = positional_count(parent)
        return -count <= part <= count
    return isinstance(part, (str, int, float, bool))
