"""A writer that has more to do than to write its files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from kauldron.writers import KDMetricWriter
from kauldron.writers.background import BackgroundQueue

_QUEUE = "_extra_queue"


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueuedWriter(KDMetricWriter):
    """A `KDMetricWriter` with a thread for what else is to be done, in order.

    What a call raises is raised by a later write, `flush` or `close`.
    """

    def _later(self, function: Callable[..., Any], *args: Any) -> None:
        """Call `function(*args)` in the background."""
        queue = vars(self).get(_QUEUE)
        if queue is None:
            queue = BackgroundQueue(f"kauldron-{type(self).__name__}-{self.collection}")
            object.__setattr__(self, _QUEUE, queue)
        queue.submit(function, *args)

    def flush(self) -> None:
        queue = vars(self).get(_QUEUE)
        if queue is not None:
            queue.wait()
        super().flush()

    def close(self) -> None:
        queue = vars(self).get(_QUEUE)
        try:
            if queue is not None:
                object.__setattr__(self, _QUEUE, None)
                queue.close()
        finally:
            super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != _QUEUE}
