"""Options of a checkpointer that cannot be meant."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from kauldron.ckpts import best_metric

if TYPE_CHECKING:
    from kauldron.ckpts.checkpointer import Checkpointer

_LEAST_VALUES: dict[str, Any] = {
    "save_interval_steps": 1,
    "max_to_keep": 0,
    "keep_period": 1,
    "keep_time_interval": datetime.timedelta(0),
}
_REQUIRED = ("save_interval_steps",)
_CHOICES = {"best_mode": ("max", "min"), "on_save_error": ("raise", "warn")}


def check_options(checkpointer: Checkpointer) -> None:
    """Raise `ValueError` that names the option and what it can be."""
    for name, least in _LEAST_VALUES.items():
        value = getattr(checkpointer, name)
        if value is None and name not in _REQUIRED:
            continue
        if not _is_at_least(value, least):
            raise ValueError(
                f"Checkpointer.{name} must be at least {least}, got {value!r}."
            )
    for name, choices in _CHOICES.items():
        value = getattr(checkpointer, name)
        if value not in choices:
            raise ValueError(
                f"Checkpointer.{name} must be {' or '.join(map(repr, choices))}, got "
                f"{value!r}."
            )
    if checkpointer.best_metric_path is not None:
        best_metric.owner_of(checkpointer.best_metric_path)


def _is_at_least(value: Any, least: Any) -> bool:
    try:
        return value >= least
    except TypeError:
        return False
