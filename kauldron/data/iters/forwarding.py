"""Iterators that leave being saved to the iterator below."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from kauldron.data.iters.iterator import Iterator


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ForwardingIterator(Iterator):
    """The iterator of an operation over one that is saved in its own way.

    Attributes:
      source: The operation's data set.
      iter: The operation's iterator.
      root: The iterator that is saved and restored.
    """

    iter: Any
    root: Iterator

    def __next__(self) -> Any:
        return next(self.iter)

    def get_state(self) -> dict[str, Any]:
        return self.root.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.root.set_state(state)

    def close(self) -> None:
        self.iter.close()

    def __kd_ocp_handlers__(self) -> Any:
        return self.root.__kd_ocp_handlers__()

    def __kd_ocp_save_args__(self) -> Any:
        return self.root.__kd_ocp_save_args__()

    def __kd_ocp_restore_args__(self) -> Any:
        return self.root.__kd_ocp_restore_args__()

    def __kd_ocp_restore_post__(self, value: Any) -> Self:
        self.root.__kd_ocp_restore_post__(value)
        return self
