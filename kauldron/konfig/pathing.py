"""Finds places of a config by path: `model.layers[0].features`, `**.batch_size`.

The text form is that of `kauldron.path_grammar`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

from kauldron import path_grammar
from kauldron.konfig.argument_hints import accepted_names
from kauldron.konfig.errors import key_error
from kauldron.konfig.keys import key_of_parameter, signature_of_call
from kauldron.konfig.node import (
    QUALNAME_KEY,
    Node,
    expression,
    is_call,
    is_const,
    path_part,
    positional_count,
    raw_fields,
)
from kauldron.konfig.normalizing import LEAF_TYPES
from kauldron.konfig.qualnames import did_you_mean
from kauldron.konfig.references import is_reference
from kauldron.path_grammar import Part, Wildcard

Parts: TypeAlias = tuple[Part, ...]
Path: TypeAlias = str | Sequence[Part]

_NOT_GIVEN: Any = object()


class ConfigIndexError(KeyError, IndexError):
    """An index of a path is out of range."""

    __str__ = IndexError.__str__  # KeyError would show the repr of the text


def path_parts(path: Path) -> Parts:
    """The parts of a path given as text or as parts."""
    return path_grammar.parse(path) if isinstance(path, str) else tuple(path)


def has_wildcard(parts: Parts) -> bool:
    return any(isinstance(part, Wildcard) for part in parts)


# ------------------------------------------------------------------------------------
# One container
# ------------------------------------------------------------------------------------


def is_container(value: Any) -> bool:
    """Whether a path can go on below this value."""
    if isinstance(value, Node):
        return not is_const(value)
    return isinstance(value, (list, tuple))


def raw_children(container: Any) -> Iterator[tuple[Part, Any]]:
    """The parts and stored values below a node, list or tuple; nothing for a leaf."""
    if isinstance(container, Node):
        for key, value in list(raw_fields(container).items()):
            yield path_part(container, key), value
    elif isinstance(container, (list, tuple)):
        yield from enumerate(container)


def key_of(node: Node, part: Part) -> Any:
    """The key under which `node` stores what a path calls `part`."""
    if isinstance(part, int) and not isinstance(part, bool):
        if is_call(node):
            return str(part + positional_count(node) if part < 0 else part)
        if part not in raw_fields(node) and str(part) in raw_fields(node):
            return str(part)
    elif type(part) is str and part not in raw_fields(node):
        return key_of_parameter(node, part) or part
    return part


def has_child(container: Any, part: Part) -> bool:
    """Whether a container holds something under one part of a path."""
    if isinstance(container, Node):
        key = key_of(container, part)
        return not isinstance(key, (slice, tuple)) and key in raw_fields(container)
    if isinstance(container, (list, tuple)):
        if not isinstance(part, int) or isinstance(part, bool):
            return False
        return -len(container) <= part < len(container)
    return False


def raw_child(container: Any, part: Any) -> Any:
    """What a container stores under a part that it has."""
    if isinstance(container, Node):
        return raw_fields(container)[key_of(container, part)]
    return container[part]


def child(container: Any, part: Any) -> Any:
    """What a container holds under a part that it has, references evaluated."""
    if isinstance(container, Node):
        return container[key_of(container, part)]
    value = container[part]
    if is_reference(value):
        value = value.get()
    return value if is_normal(value) else normalized(value)


def is_normal(value: Any) -> bool:
    """Whether an item of a list is what the list would hold had it been assigned.

    Whatever is appended to a stored list comes in as it is.
    """
    return type(value) in LEAF_TYPES or isinstance(value, (Node, list, tuple))


def normalized(value: Any) -> Any:
    """A value as a field would store it; a real object stays what it is."""
    from kauldron.konfig.configdict import ConfigDict

    try:
        return raw_fields(ConfigDict({"value": value}))["value"]
    except ValueError:
        return value


def readable_child(container: Any, part: Any) -> Any:
    """As `child`, but a reference that cannot be read stays a reference."""
    try:
        return child(container, part)
    except Exception:  # dangling, cyclic or unset: whoever resolves it will say so
        return raw_child(container, part)


def children(container: Any) -> Iterator[tuple[Part, Any]]:
    """As `raw_children`, with every reference evaluated that can be."""
    for part, raw in raw_children(container):
        yield part, raw if is_normal(raw) else readable_child(container, part)


# ------------------------------------------------------------------------------------
# Paths
# ------------------------------------------------------------------------------------


def get_by_path(cfg: Any, path: Path, default: Any = _NOT_GIVEN) -> Any:
    """The value at a path, references evaluated.

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
    """The paths of all existing places that a path with wildcards stands for.

    `*` and `**` go into nodes, lists and tuples. A node that is reachable by several
    paths is found by each of them; a cycle is entered once.
    """
    found: dict[Parts, None] = {}
    _find(cfg, path_parts(path), (), found, ())
    return list(found)


def _find(
    value: Any, rest: Parts, at: Parts, found: dict[Parts, None], above: tuple[int, ...]
) -> None:
    if not rest:
        found.setdefault(at)
        return
    part, after, above_below = rest[0], rest[1:], (*above, id(value))
    if not isinstance(part, Wildcard):
        if has_child(value, part):
            below = readable_child(value, part)
            _find(below, after, (*at, part), found, above_below)
        return
    if part is Wildcard.DOUBLE_STAR:
        _find(value, after, at, found, above)
    if not is_container(value) or id(value) in above:
        return
    for name, below in children(value):
        if name != QUALNAME_KEY:
            remaining = rest if part is Wildcard.DOUBLE_STAR else after
            _find(below, remaining, (*at, name), found, above_below)


# ------------------------------------------------------------------------------------
# Errors
# ------------------------------------------------------------------------------------


def shown(parts: Parts) -> str:
    """A path in quotes, for messages."""
    return repr(path_grammar.format_path(parts))


def raise_not_found(parts: Parts, depth: int, container: Any) -> NoReturn:
    """Raises: `container`, reached by the first `depth` parts, lacks the next."""
    part = parts[depth]
    text = path_grammar.format_part(part).removeprefix(".")
    message = f"There is no {expression(parts)}: {expression(parts[:depth])}"
    if isinstance(container, (list, tuple)):
        kind, length = type(container).__name__, len(container)
        message += f" is a {kind} of length {length}"
        raise ConfigIndexError(message + _valid_range(length, length - 1))
    if not isinstance(container, Node):
        kind = type(container).__name__
        raise key_error(f"{message} is of type {kind} ({container!r:.40}).")
    if is_call(container) and isinstance(part, int):
        count = positional_count(container)
        message += f" has {count} positional arguments"
        raise ConfigIndexError(message + _valid_range(count, count))
    signature = signature_of_call(container) if is_call(container) else None
    names = [str(key) for key in raw_fields(container)]
    if signature is not None:
        names += [name for name in accepted_names(signature) if name not in names]
    message += f" has no {text}.{did_you_mean(str(part), names)}"
    raise key_error(f"{message} Available: {', '.join(names) or 'nothing'}.")


def _valid_range(length: int, last: int) -> str:
    return f", use {-length} to {last}." if last > 0 or length else "."
