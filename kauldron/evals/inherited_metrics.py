"""Metrics of training that cannot be measured in evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from kauldron import kontext


def split_off(
    tree: Mapping[str, Any], absent: tuple[str, ...]
) -> tuple[dict[str, Any], list[str]]:
    """Separate the metrics that read what is not there.

    Args:
      tree: Metrics by name; nested mappings are allowed.
      absent: First parts of the keys that find nothing.

    Returns:
      The tree without them, and their names.
    """
    kept: dict[str, Any] = {}
    dropped: list[str] = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            kept[name], names = split_off(value, absent)
            dropped += [f"{name}/{inner}" for inner in names]
        elif any(_first_part(key) in absent for key in _keys_of(value)):
            dropped.append(name)
        else:
            kept[name] = value
    return kept, dropped


def _keys_of(metric: Any) -> list[str]:
    keys = jax.tree.leaves(kontext.get_keypaths(metric))
    return [key for key in map(str, keys) if key]


def _first_part(key: str) -> str:
    return key.split(".")[0].split("[")[0]
