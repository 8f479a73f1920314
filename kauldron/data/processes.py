"""Which part of the data belongs to this process."""

from __future__ import annotations

import dataclasses
import sys

from kauldron.data.engine.plans import Share

_inherited: Share | None = None


def current_share() -> Share:
    """This process among those of the job, as jax counts them.

    Without jax there is only one: a script that never imports jax need not start it.
    """
    if _inherited is not None:
        return _inherited
    jax = sys.modules.get("jax")
    if jax is None:
        return Share()
    return Share(index=jax.process_index(), count=jax.process_count())


def inherit_share(share: Share) -> None:
    """In a data worker: count as the process that started it."""
    global _inherited
    _inherited = share


@dataclasses.dataclass(frozen=True)
class BatchSize:
    """A batch size over all processes, and the part of each.

    >>> BatchSize(256).per_process
    256

    Raises:
      ValueError: The number of processes does not divide it.
    """

    total: int

    def __post_init__(self) -> None:
        if self.total < 0:
            raise ValueError(f"batch_size={self.total} is negative.")
        count = current_share().count
        if self.total % count:
            raise ValueError(
                f"batch_size={self.total} cannot be shared equally by {count} processes;"
                f" use a multiple of {count}."
            )

    @property
    def per_process(self) -> int:
        """Records of each batch that one process provides."""
        return self.total // current_share().count
