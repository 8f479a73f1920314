"""A short text that is equal for configs of equal content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from kauldron import path_grammar
from kauldron.konfig.flattening import as_config
from kauldron.konfig.json_format import dumps
from kauldron.konfig.keys import plain_key
from kauldron.konfig.node import CONST_KEY, ID_KEY, QUALNAME_KEY
from kauldron.konfig.pathing import Parts
from kauldron.konfig.qualnames import normalize_qualname


def fingerprint(cfg: Any, length: int = 16, *, exclude: Iterable[str] = ()) -> str:
    """A hash of the content of a config, stable across processes.

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
    data = _canonical(json.loads(dumps(as_config(cfg))), (), patterns)
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _canonical(data: Any, at: Parts, exclude: list[Parts]) -> Any:
    """JSON data without what makes no difference."""
    if isinstance(data, list):
        items = ((index, item) for index, item in enumerate(data))
        return [
            _canonical(item, (*at, index), exclude)
            for index, item in items
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
    """A JSON key as it stands in paths."""
    if QUALNAME_KEY in data and key.isdecimal():
        return int(key)
    return plain_key(key)


def _is_excluded(at: Parts, exclude: list[Parts]) -> bool:
    return any(path_grammar.matches(at, pattern) for pattern in exclude)
