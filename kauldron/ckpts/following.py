"""Waiting for the checkpoints of a run that goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator


def new_steps(
    latest_step: Callable[[], int | None],
    *,
    min_interval_secs: float,
    seconds_to_sleep: float,
    timeout: float | None,
    timeout_fn: Callable[[], bool] | None,
) -> Iterator[int]:
    """See `BaseCheckpointer.iter_new_checkpoints`.

    Args:
      latest_step: Looks at the folder.
      min_interval_secs: Least time between two steps.
      seconds_to_sleep: Time between two looks.
      timeout: Longest wait for a new step.
      timeout_fn: Asked after the timeout: whether to stop.
    """
    last = -1
    while True:
        step = _wait(latest_step, last, seconds_to_sleep, timeout, timeout_fn)
        if step is None:
            return
        yielded = time.monotonic()
        yield step
        last = step
        time.sleep(max(0.0, min_interval_secs - (time.monotonic() - yielded)))


def _wait(
    latest_step: Callable[[], int | None],
    last: int,
    seconds_to_sleep: float,
    timeout: float | None,
    timeout_fn: Callable[[], bool] | None,
) -> int | None:
    """The newest step after `last`; `None` when there will be no other."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        is_late = time.monotonic() >= deadline
        is_over = is_late and (timeout_fn is None or timeout_fn())
        step = latest_step()  # looked at after `timeout_fn` said that it is over
        if step is not None and step > last:
            return step
        if is_over:
            return None
        rest = math.inf if is_late else max(0.0, deadline - time.monotonic())
        time.sleep(min(seconds_to_sleep, rest))
