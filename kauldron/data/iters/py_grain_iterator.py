"""Iterators that can be saved and restored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from kauldron.data.engine.next_batches import stack_next
from kauldron.data.iters.iterator import Iterator


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PyGrainIterator(Iterator):
    """An iterator whose position is saved as one JSON file per process.

    Attributes:
      source: The data set it iterates over.
      iter: Anything with `__next__`, `get_state` and `set_state`: ours, or a
        `grain.DatasetIterator`.
    """

    iter: Any

    def __next__(self) -> Any:
        return next(self.iter)

    def next_batches(self, count: int) -> Any:
        """Up to `count` batches stacked on a new leading axis, built in one go.

        Fewer come at the end of the data, and before a smaller last batch.
        """
        if hasattr(self.iter, "next_batches"):
            return self.iter.next_batches(count)
        return stack_next(self, count)

    def next_positions(self, count: int) -> Any:
        """Stream positions of the next batches, which are skipped.

        For `kd.data.DeviceRecords`.
        """
        return self.iter.next_positions(count)

    def get_state(self) -> dict[str, Any]:
        return self.iter.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.iter.set_state(dict(state))

    def close(self) -> None:
        if hasattr(self.iter, "close"):
            self.iter.close()

    def __kd_ocp_handlers__(self) -> Any:
        from kauldron.data.iters import state_handler

        return state_handler.PyGrainCheckpointHandler()

    def __kd_ocp_save_args__(self) -> Any:
        from kauldron.data.iters import state_handler

        return state_handler.PyGrainCheckpointSave(self.get_state())

    def __kd_ocp_restore_args__(self) -> Any:
        from kauldron.data.iters import state_handler

        return state_handler.PyGrainCheckpointRestore()

    def __kd_ocp_restore_post__(self, value: Any) -> Self:
        self.set_state(value)
        return self
