"""Schedules over the steps of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from kauldron import kontext
from kauldron.inspect.tables import make_table, rows_of

_NUM_POINTS = 1000
_DEFAULT_STEPS = 1000
_COLUMNS: tuple[str, ...] = ("step", "schedule", "value")


def plot_schedules(schedules: Any, num_steps: int | None = None) -> Any:
    """Chart schedules from step 0 to `num_steps`.

    Args:
      schedules: Schedules by name (nested names are joined by `/`), or a single one.
      num_steps: The last step; 1000 if it is not known.

    Returns:
      An Altair chart of 1000 points per schedule. Without Altair, the table that it
      shows: `step`, `schedule`, `value`.
    """
    table = schedule_table(schedules, num_steps)
    try:
        import altair
    except ImportError:
        return table
    data = altair.InlineData(values=rows_of(table)[1])
    return (
        altair.Chart(data)
        .mark_line()
        .encode(x="step:Q", y="value:Q", color="schedule:N")
        .properties(width=600)
        .interactive()
    )


def schedule_table(schedules: Any, num_steps: int | None = None) -> Any:
    """The values that `plot_schedules` shows."""
    if not isinstance(schedules, Mapping):
        schedules = {"schedule": schedules}
    last = _DEFAULT_STEPS if num_steps is None else num_steps
    steps = np.rint(np.linspace(0, last, _NUM_POINTS)).astype(np.int32)
    rows = [
        dict(zip(_COLUMNS, (int(step), name, float(value))))
        for name, schedule in kontext.flatten_with_path(
            schedules, separator="/"
        ).items()
        for step, value in zip(steps, _values(schedule, steps))
    ]
    return make_table(_COLUMNS, rows)


def _values(schedule: Any, steps: np.ndarray) -> np.ndarray:
    """In one call where the schedule can be traced; else one by one."""
    try:
        return np.asarray(jax.vmap(schedule)(steps))
    except Exception:  # Python code that needs a number: say what is wrong with that
        return np.array([float(schedule(int(step))) for step in steps])
