"""The values that checkpoints are ranked by."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron import kontext

WORST = -math.inf
_LARGEST = 1024
_log = logging.getLogger(__name__)


def to_json(values: Any, *, name: str = "metrics") -> Any:
    """Numbers, texts and short arrays by name; what is neither is left out."""
    if isinstance(values, Mapping):
        converted = {
            str(key): to_json(value, name=f"{name}.{key}")
            for key, value in values.items()
        }
        return {key: value for key, value in converted.items() if value is not None}
    if isinstance(values, str | bool | int | float):
        return values
    if isinstance(values, list | tuple):
        entries = [to_json(value, name=name) for value in values]
        return [entry for entry in entries if entry is not None]
    try:
        array = np.asarray(values)
        is_number = np.issubdtype(array.dtype, np.bool_) or array.dtype.kind in "iuf"
        if not is_number:  # bfloat16 and its like
            array = array.astype(np.float64)
        if array.size <= _LARGEST:
            return array.tolist()
    except Exception as error:  # whatever it is, it must not stop a save
        _log.debug("%s cannot be stored with the checkpoint: %r", name, error)
        return None
    _log.debug("%s is too large to be stored with the checkpoint", name)
    return None


def find(values: Any, path: str | None) -> float | None:
    """The number at a path; `None` if there is none."""
    if path is None or not values:
        return None
    value = kontext.get_by_path(values, path, default=None)
    return float(value) if isinstance(value, bool | int | float) else None


def paths(values: Any) -> list[str]:
    """Paths of all values."""
    return list(kontext.flatten_with_path(values))


def rank(value: float | None, *, mode: str) -> float:
    """Higher is better, whatever the mode; no number and no metric are worst."""
    if value is None or math.isnan(value):
        return WORST
    return value if mode == "max" else -value
