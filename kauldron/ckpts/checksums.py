"""Noticing that a stored array changed on disk."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from kauldron.ckpts import items, structure

KEY = "crc32"


def of_parts(parts: Mapping[str, Any]) -> dict[str, int]:
    """Checksum of every array of the train state, by path."""
    part = parts.get(items.DEFAULT_ITEM_NAME)
    return _of_tree(part) if isinstance(part, items.StandardCheckpointItem) else {}


def check(parts: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Raise `OSError` if a restored array is not what was saved."""
    noted = (metadata.get("custom_metadata") or {}).get(KEY)
    if not noted:
        return
    found = _of_tree(parts.get(items.DEFAULT_ITEM_NAME))
    changed = [path for path, crc in found.items() if noted.get(path, crc) != crc]
    if changed:
        raise OSError(f"The stored data changed on disk: {', '.join(changed)}.")


def _of_tree(tree: Any) -> dict[str, int]:
    return {
        path: zlib.crc32(np.ascontiguousarray(np.asarray(leaf)).tobytes())
        for path, leaf in structure.flatten(tree).items()
        if isinstance(leaf, np.ndarray)
        or (isinstance(leaf, jax.Array) and leaf.is_fully_addressable)
    }
