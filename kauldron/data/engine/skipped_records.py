"""Bad records that were left out, on their way to whoever counts them."""

from __future__ import annotations

import collections


class SkippedRecords:
    """Collects what went wrong with records; any thread may add."""

    def __init__(self):
        self._messages: collections.deque[str] = collections.deque()

    def add(self, where: str, error: BaseException) -> None:
        """Note a record that failed."""
        self._messages.append(f"{where} {type(error).__name__}: {error}")

    def drain(self) -> list[str]:
        """What came in since the last time."""
        messages = []
        while self._messages:
            messages.append(self._messages.popleft())
        return messages
