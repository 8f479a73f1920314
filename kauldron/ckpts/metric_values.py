"""Values that checkpoints are ranked by, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron import kontext

_LARGEST = 1024


def to_json(values: Any) -> Any:
    """Numbers, texts and short arrays by name; what is neither is left out."""
    if isinstance(values, Mapping):
        converted = {str(key): to_json(value) for key, value in values.items()}
        return {key: value for key, value in converted.items() if value is not None}
    if isinstance(values, str | bool | int | float):
        return values
    if isinstance(values, list | tuple):
        return [entry for entry in map(to_json, values) if entry is not None]
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return None
    return array.tolist() if array.size <= _LARGEST else None


def find(values: Any, path: str | None) -> float | None:
    """The number at a path; `None` if there is none."""
    if path is None or not values:
        return None
    value = kontext.get_by_path(values, path, default=None)
    return float(value) if isinstance(value, bool | int | float) else None


def paths(values: Any) -> list[str]:
    """Paths of all values."""
    return list(kontext.flatten_with_path(values))
