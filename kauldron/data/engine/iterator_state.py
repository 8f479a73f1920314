"""Where an iterator is, as the JSON that goes into a checkpoint."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

_log = logging.getLogger(__name__)

_VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class IteratorState:
    """Position of a consumer in a stream.

    Attributes:
      position: Stream positions consumed: over all processes, or of this process alone
        if `is_local`.
      process_count: Number of processes that share the stream.
      is_local: Whether every process has a position of its own (filters, grain).
      batch_size: Over all processes.
      num_records: Records of one epoch.
      total: Positions of the whole stream, `None` for endless data.
    """

    position: int
    process_count: int
    is_local: bool
    batch_size: int | None
    num_records: int
    total: int | None

    def to_json(self) -> dict[str, Any]:
        """What `get_state` gives."""
        count = 1 if self.is_local else self.process_count
        return {
            "next_index": self.position // count,
            "global_index": None if self.is_local else self.position,
            "process_count": self.process_count,
            "batch_size": self.batch_size,
            "num_records": self.num_records,
            "version": _VERSION,
        }

    def position_from(self, state: Mapping[str, Any], *, name: str) -> int:
        """The position that a saved state means for this iterator.

        Raises:
          ValueError: The state was written by something else, or by another number of
            processes where each has its own position.
          IndexError: The position lies beyond the data.
        """
        next_index = _next_index(state, name)
        count = state.get("process_count") or self.process_count
        position = state.get("global_index")
        if self.is_local:
            if count != self.process_count:
                raise ValueError(
                    f"The state of {name} was saved by {count} processes and cannot be"
                    f" restored by {self.process_count}: with filters, or through"
                    " grain, each process has a position of its own. Only dense"
                    " built-in pipelines can change the number of processes."
                )
            position = next_index
        elif position is None:
            position = next_index * count
        self._check_inside(position, name)
        saved = state.get("num_records")
        if saved is not None and saved != self.num_records:
            _log.warning(
                "%s has %d records now, but had %d when its position was saved; the"
                " order of the running epoch changes.",
                name,
                self.num_records,
                saved,
            )
        return position

    def _check_inside(self, position: int, name: str) -> None:
        if position < 0 or (self.total is not None and position > self.total):
            raise IndexError(
                f"The saved position of {name} is {position}, but the data has only"
                f" {self.total} records (over all epochs). Has the data set shrunk?"
            )


def _next_index(state: Mapping[str, Any], name: str) -> int:
    if "iterators_in_use_states" in state or "workers_state" in state:
        raise ValueError(
            f"The saved state of {name} was written by grain's worker processes, one"
            " position per worker; it does not say which records were consumed and"
            " cannot be restored. Restore the checkpoint without the data iterator."
        )
    next_index = state.get("next_index")
    if not isinstance(next_index, int):
        raise ValueError(
            f"This is no state of {name}: expected 'next_index' to be an integer; the"
            f" state is {dict(state)!r}."
        )
    return next_index
