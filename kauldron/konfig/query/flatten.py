"""`flatten` and `fingerprint`: a config as leaves by path, and as one short text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kauldron import path_grammar
from kauldron.konfig.symbols import normalize_qualname
from kauldron.konfig.text.json_format import to_plain
from kauldron.konfig.tree.configdict import as_config
from kauldron.konfig.tree.node import (
    CONST_KEY,
    ID_KEY,
    QUALNAME_KEY,
    Key,
    Node,
    Parts,
    Unreadable,
    Walk,
    path_part,
    raw_value,
)
from kauldron.konfig.tree.storing import plain_key


def flatten(cfg: Any) -> dict[str, Any]:
    """Return all leaves of a config, by path, in order.

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
      >>> flatten({"model": {"__qualname__": "m:Net", "sizes": [8, 4]}})
      {'model.__qualname__': 'm:Net', 'model.sizes[0]': 8, 'model.sizes[1]': 4}
    """
    return {
        path_grammar.format_path(parts): {} if isinstance(leaf, Node) else leaf
        for parts, leaf in iter_leaves(as_config(cfg))
    }


def iter_leaves(cfg: Any) -> Iterator[tuple[Parts, Any]]:
    """Yield the paths and values of all leaves, references evaluated."""
    yield from _leaves(cfg, Walk())


def _leaves(value: Any, walk: Walk) -> Iterator[tuple[Parts, Any]]:
    if not isinstance(value, (Node, list, tuple)):
        yield walk.parts(), value
        return
    if not walk.values(value) and walk.around:
        yield walk.parts(), value
    for key, item in walk.inside(value):
        is_unreadable = isinstance(item, Unreadable)
        yield from _leaves(raw_value(value, key) if is_unreadable else item, walk)


def iter_nodes(cfg: Any) -> Iterator[tuple[Parts, Node]]:
    """Yield all nodes at all their places, parents first, not through references."""

    def below(
        value: Any, at: Parts, above: frozenset[int]
    ) -> Iterator[tuple[Parts, Node]]:
        if id(value) in above:
            return
        items: Iterable[tuple[Key, Any]] = ()
        if isinstance(value, Node):
            yield at, value
            items = list(value._fields.items())
        elif isinstance(value, (list, tuple)):
            items = enumerate(value)
        for key, item in items:
            yield from below(item, (*at, path_part(value, key)), above | {id(value)})

    yield from below(cfg, (), frozenset())


def fingerprint(cfg: Any, length: int = 16, *, exclude: Iterable[str] = ()) -> str:
    """Return a hash of the content of a config, stable across processes.

    The order of keys, the position of the colon in qualified names and the sharing of
    nodes make no difference; references count with their current value.

    Args:
      cfg: A config, or a plain mapping that could be one.
      length: The number of hexadecimal digits, at most 64.
      exclude: Paths to leave out, wildcards allowed, such as `workdir`.

    Returns:
      Lower case hexadecimal digits.

    Example:
      >>> a = fingerprint({"lr": 0.1, "workdir": "x"}, exclude=["workdir"])
      >>> a == fingerprint({"workdir": "y", "lr": 0.1}, exclude=["workdir"])
      True
    """
    if isinstance(exclude, str):
        raise TypeError(f"exclude is a list of paths, not the text {exclude!r}.")
    patterns = [path_grammar.parse(pattern) for pattern in exclude]
    data = _canonical(to_plain(as_config(cfg)), (), patterns)
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _canonical(data: Any, at: Parts, exclude: list[Parts]) -> Any:
    """Return JSON data without what makes no difference."""
    if isinstance(data, list):
        return [
            _canonical(item, (*at, index), exclude)
            for index, item in enumerate(data)
            if not _is_excluded((*at, index), exclude)
        ]
    if not isinstance(data, Mapping):
        return data
    result = {}
    for key, value in data.items():
        place = (*at, _part(data, key))
        if key == ID_KEY or _is_excluded(place, exclude):
            continue
        is_symbol = key in (QUALNAME_KEY, CONST_KEY) and isinstance(value, str)
        result[key] = (
            normalize_qualname(value)
            if is_symbol
            else _canonical(value, place, exclude)
        )
    return result


def _part(data: Mapping[str, Any], key: str) -> Any:
    """Return a JSON key as it stands in paths."""
    if QUALNAME_KEY in data and key.isdecimal():
        return int(key)
    return plain_key(key)


def _is_excluded(at: Parts, exclude: list[Parts]) -> bool:
    return any(path_grammar.matches(at, pattern) for pattern in exclude)
