"""JSON knows no tuples."""

from __future__ import annotations

from typing import Any


def json_list_to_tuple(value: Any) -> Any:
    """Turn the lists of decoded JSON into tuples, at all depths.

    >>> json_list_to_tuple({"shape": [1, [2, 3]]})
    {'shape': (1, (2, 3))}
    """
    if isinstance(value, dict):
        return {key: json_list_to_tuple(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(json_list_to_tuple(item) for item in value)
    return value
