"""Iterators that always start from the beginning."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator as PyIterator
from collections.abc import Mapping
from typing import Any, Self

from kauldron.data.iters.iterator import Iterator

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NonCheckpointableIterator(Iterator):
    """Any Python iterator. Its position is not saved.

    Attributes:
      source: The data set it iterates over.
      iter: The iterator.
    """

    iter: PyIterator[Any]

    def __next__(self) -> Any:
        return next(self.iter)

    def get_state(self) -> dict[str, Any]:
        """Nothing: the position is not known."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Nothing, said aloud: the data goes on from where the iterator is."""
        self._warn()

    def close(self) -> None:
        close = getattr(self.iter, "close", None)
        if close is not None:
            close()

    def __kd_ocp_handlers__(self) -> Any:
        from kauldron.data.iters import noop_handler

        return noop_handler.NoopHandler()

    def __kd_ocp_save_args__(self) -> Any:
        from kauldron.data.iters import noop_handler

        return noop_handler.NoopArg()

    def __kd_ocp_restore_args__(self) -> Any:
        from kauldron.data.iters import noop_handler

        return noop_handler.NoopArg(self)

    def __kd_ocp_restore_post__(self, value: Any) -> Self:
        self._warn()
        return self

    def _warn(self) -> None:
        _log.warning(
            "The iterator over %s cannot be restored: the data restarts from the"
            " beginning, so early records are seen more often. Give its __iter__'s"
            " result get_state() and set_state() to change that.",
            type(self.source).__name__,
        )
