"""Waiting for a training job that somebody else runs."""

from __future__ import annotations

import time

from kauldron.train.preemption import raise_if_stop_requested
from kauldron.utils import status

_LOG_SECONDS = 60.0
_SIGNAL_SECONDS = 0.2


class Patience:
    """Waits between two looks, tells what for, and gives up in the end."""

    def __init__(self, *, poll_secs: float, timeout_secs: float | None):
        self._poll_secs = poll_secs
        self._timeout_secs = timeout_secs
        self._since = time.monotonic()
        self._last_log: float | None = None

    def renew(self) -> None:
        """Something appeared: the time limit starts anew."""
        self._since = time.monotonic()
        self._last_log = None

    def wait(self, awaited: str) -> None:
        """Wait a moment.

        Args:
          awaited: What is missing, and where.

        Raises:
          TimeoutError: Nothing appeared for too long.
          StopRequested: The process was asked to stop.
        """
        now = time.monotonic()
        limit = self._timeout_secs
        if limit is not None and now - self._since >= limit:
            raise TimeoutError(
                f"Nothing appeared for {limit:g} seconds (`timeout_secs`), still waiting "
                f"for {awaited}. Is the training job alive?"
            )
        if self._last_log is None or now - self._last_log >= _LOG_SECONDS:
            self._last_log = now
            status.log(f"Waiting for {awaited}.")
        end = now + self._poll_secs
        if limit is not None:
            end = min(end, self._since + limit)
        while (left := end - time.monotonic()) > 0:
            raise_if_stop_requested()
            time.sleep(min(left, _SIGNAL_SECONDS))
        raise_if_stop_requested()
