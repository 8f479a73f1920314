"""Find and set places of a config by path: `model.layers[0].features`, `**.seed`.

The text form is that of `kauldron.path_grammar`. Command line overrides and sweeps come
through here.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from ml_collections import FieldReference

from kauldron import path_grammar
from kauldron.errors import ReadableKeyError, did_you_mean
from kauldron.konfig.signatures import accepted_names, known_signature
from kauldron.konfig.tree.node import (
    QUALNAME_KEY,
    Node,
    Walk,
    expression,
    is_call,
    is_const,
    is_normal,
    key_of_parameter,
    positional_count,
)
from kauldron.path_grammar import Part, Wildcard

Parts: TypeAlias = tuple[Part, ...]
Path: TypeAlias = str | Sequence[Part]

_NOT_GIVEN: Any = object()


class ConfigIndexError(ReadableKeyError, IndexError):
    """An index of a path is out of range."""


def path_parts(path: Path) -> Parts:
    """Return the parts of a path given as text or as parts."""
    return path_grammar.parse(path) if isinstance(path, str) else tuple(path)


def has_wildcard(parts: Parts) -> bool:
    return any(isinstance(part, Wildcard) for part in parts)


# ------------------------------------------------------------------------------------
# One container
# ------------------------------------------------------------------------------------


def is_container(value: Any) -> bool:
    """Return whether a path can go on below this value."""
    if isinstance(value, Node):
        return not is_const(value)
    return isinstance(value, (list, tuple))


def key_of(node: Node, part: Part) -> Any:
    """Return the key under which `node` stores what a path calls `part`."""
    if isinstance(part, int) and not isinstance(part, bool):
        if is_call(node):
            return str(part + positional_count(node) if part < 0 else part)
        if part not in node._fields and str(part) in node._fields:
            return str(part)
    elif type(part) is str and part not in node._fields:
        return key_of_parameter(node, part) or part
    return part


def has_child(container: Any, part: Part) -> bool:
    """Return whether a container holds something under one part of a path."""
    if isinstance(container, Node):
        key = key_of(container, part)
        return not isinstance(key, (slice, tuple)) and key in container._fields
    if isinstance(container, (list, tuple)):
        if not isinstance(part, int) or isinstance(part, bool):
            return False
        return -len(container) <= part < len(container)
    return False


def raw_child(container: Any, part: Any) -> Any:
    """Return what a container stores under a part that it has."""
    if isinstance(container, Node):
        return container._fields[key_of(container, part)]
    return container[part]


def child(container: Any, part: Any) -> Any:
    """Return what a container holds under a part that it has, references evaluated."""
    if isinstance(container, Node):
        return container[key_of(container, part)]
    value = container[part]
    if isinstance(value, FieldReference):
        value = value.get()
    if is_normal(value):
        return value
    from kauldron.konfig.tree.configdict import ConfigDict  # which knows this module

    try:
        return ConfigDict({"value": value})._fields["value"]
    except ValueError:
        return value  # a real object


def readable_child(container: Any, part: Any) -> Any:
    """Return the child, or its reference if that cannot be read."""
    try:
        return child(container, part)
    except Exception:  # dangling, cyclic or unset: whoever resolves it will say so
        return raw_child(container, part)


# ------------------------------------------------------------------------------------
# Paths
# ------------------------------------------------------------------------------------


def get_by_path(cfg: Any, path: Path, default: Any = _NOT_GIVEN) -> Any:
    """Return the value at a path, references evaluated.

    Args:
      cfg: A config.
      path: Text or parts, without wildcards.
      default: Returned when the path leads nowhere.

    Raises:
      KeyError: The path leads nowhere and there is no default. An index that is out of
        range is an `IndexError` as well.
      ValueError: The text is not a path, or has wildcards.

    Example:
      >>> from kauldron import konfig
      >>> get_by_path(konfig.ConfigDict({"layers": [{"n": 3}]}), "layers[0].n")
      3
    """
    parts = path_parts(path)
    if has_wildcard(parts):
        raise ValueError(f"{shown(parts)} has wildcards; use konfig.select.")
    value = cfg
    for depth, part in enumerate(parts):
        if not has_child(value, part):
            if default is not _NOT_GIVEN:
                return default
            raise_not_found(parts, depth, value)
        value = child(value, part)
    return value


def find_paths(cfg: Any, path: Path) -> list[Parts]:
    """Return the paths of all existing places that a path with wildcards stands for.

    `*` and `**` go into nodes, lists and tuples. A node that is reachable by several
    paths is found by each of them; a cycle is entered once.
    """
    found: dict[Parts, None] = {}
    walk = Walk()

    def find(value: Any, rest: Parts, at: Parts, above: tuple[int, ...]) -> None:
        if not rest:
            found.setdefault(at)
            return
        part, after, above_below = rest[0], rest[1:], (*above, id(value))
        if not isinstance(part, Wildcard):
            if has_child(value, part):
                below = readable_child(value, part)
                find(below, after, (*at, part), above_below)
            return
        if part is Wildcard.DOUBLE_STAR:
            find(value, after, at, above)
            after = rest
        if is_container(value) and id(value) not in above:
            for child in walk.children(value):
                if child.key != QUALNAME_KEY:
                    find(child.value, after, (*at, child.part), above_below)

    find(cfg, path_parts(path), (), ())
    return list(found)


# ------------------------------------------------------------------------------------
# Errors
# ------------------------------------------------------------------------------------


def shown(parts: Parts) -> str:
    """Return a path in quotes, for messages."""
    return repr(path_grammar.format_path(parts))


def raise_not_found(parts: Parts, depth: int, container: Any) -> NoReturn:
    """Raise: `container`, reached by the first `depth` parts, lacks the next."""
    part = parts[depth]
    text = path_grammar.format_part(part).removeprefix(".")
    message = f"There is no {expression(parts)}: {expression(parts[:depth])}"
    if isinstance(container, (list, tuple)):
        kind, length = type(container).__name__, len(container)
        message += f" is a {kind} of length {length}"
        raise ConfigIndexError(message + _valid_range(length, length - 1))
    if not isinstance(container, Node):
        kind = type(container).__name__
        raise ReadableKeyError(f"{message} is of type {kind} ({container!r:.40}).")
    if is_call(container) and isinstance(part, int):
        count = positional_count(container)
        message += f" has {count} positional arguments"
        raise ConfigIndexError(message + _valid_range(count, count))
    signature = (
        known_signature(container._fields[QUALNAME_KEY]) if is_call(container) else None
    )
    names = [str(key) for key in container._fields]
    if signature is not None:
        names += [name for name in accepted_names(signature) if name not in names]
    if part in names:  # a parameter that is left at its default
        unset = f"{expression(parts[: depth + 1])} is not set"
        raise ReadableKeyError(
            f"There is no {expression(parts)}: {unset}, and nothing below it can be. Set "
            "it as a whole."
            if depth + 1 < len(parts)
            else f"{unset}."
        )
    message += f" has no {text}.{did_you_mean(str(part), names)}"
    raise ReadableKeyError(f"{message} Available: {', '.join(names) or 'nothing'}.")


def _valid_range(length: int, last: int) -> str:
    return f", use {-length} to {last}." if last > 0 or length else "."


def set_by_path(cfg: Any, path: Path, value: Any) -> list[str]:
    """Set the place, or all places, that a path names.

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
    """Return the places that an assignment to a path writes to: at least one."""
    if not parts:
        raise ValueError("An empty path names the whole config; it cannot be set.")
    if not has_wildcard(parts):
        _check_settable(cfg, parts)
        return [parts]
    if isinstance(parts[-1], Wildcard):
        raise ValueError(f"{shown(parts)}: the last part cannot be a wildcard.")
    found = find_paths(cfg, parts)
    if not found:
        raise ReadableKeyError(
            f"Nothing matches {shown(parts)}. Wildcards match fields that exist; a new "
            "field is added by its full path."
        )
    # A match inside another match would be overwritten with it.
    matches = set(found)
    return [t for t in found if not any(t[:n] in matches for n in range(len(t)))]


def assign(cfg: Any, parts: Parts, value: Any) -> None:
    """Set one place, which `find_targets` has found."""
    parent = get_by_path(cfg, parts[:-1])
    last: Any = parts[-1]
    if isinstance(parent, Node):
        parent[key_of(parent, last)] = value
    elif isinstance(parent, list):
        node, keys = holder(cfg, parts)
        node._konfig_set_inside(keys, parent, value)
    else:
        index = last % len(parent)
        assign(cfg, parts[:-1], (*parent[:index], value, *parent[index + 1 :]))


def holder(cfg: Any, parts: Parts) -> tuple[Any, tuple[Any, ...]]:
    """Return the innermost node above a place, and the keys from it to there.

    The node need not have the key, if it is the last one.
    """
    value, node, keys = cfg, cfg, ()
    part: Any
    for depth, part in enumerate(parts):
        if isinstance(value, Node):
            node, keys = value, (key_of(value, part),)
        is_last = depth == len(parts) - 1
        if not has_child(value, part) and not (is_last and value is node):
            raise_not_found(parts, depth, value)
        if value is not node:
            keys = (*keys, range(len(value))[part])  # counted from the start
        if not is_last:
            value = child(value, part)
    return node, keys


def _check_settable(cfg: Any, parts: Parts) -> None:
    """Raise unless the last part can be set below the others."""
    parent = cfg
    for depth, part in enumerate(parts[:-1]):
        if not has_child(parent, part):
            raise_not_found(parts, depth, parent)
        below = child(parent, part)
        if isinstance(below, Node) and child(parent, part) is not below:
            raise ValueError(
                f"{expression(parts[: depth + 1])} is computed again at each read; set "
                "it as a whole, or what it is computed from."
            )
        parent = below
    if not _can_hold(parent, parts[-1]):
        raise_not_found(parts, len(parts) - 1, parent)


def _can_hold(parent: Any, part: Part) -> bool:
    if not isinstance(parent, Node):
        return has_child(parent, part)
    if isinstance(part, int) and is_call(parent):
        count = positional_count(parent)
        return -count <= part <= count
    return isinstance(part, (str, int, float, bool))
