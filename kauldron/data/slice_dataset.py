"""The entry of `transforms=` that keeps some of the records."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class SliceDataset:
    """Keep some of the records, chosen as `slice` does: `(stop)`, `(start, stop[, step])`.

    Among the transforms of a source it selects records of the source, before shuffling
    and sharding: the same ones in every epoch and on every process.

    >>> SliceDataset(10)
    SliceDataset(None, 10, None)
    >>> SliceDataset(2, 10, 2).as_slice()
    slice(2, 10, 2)
    """

    start: int | None
    stop: int | None
    step: int | None

    def __init__(self, *args: int | None):
        if not 1 <= len(args) <= 3:
            raise TypeError(
                "SliceDataset takes (stop), (start, stop) or (start, stop, step); got"
                f" {len(args)} arguments."
            )
        chosen = slice(*args)
        for name in ("start", "stop", "step"):
            value = getattr(chosen, name)
            if value is not None and not hasattr(value, "__index__"):
                raise TypeError(f"SliceDataset: {name}={value!r} is not an integer.")
            object.__setattr__(self, name, value)
        if self.step == 0:
            raise ValueError("SliceDataset: the step cannot be zero.")

    def __repr__(self) -> str:
        return f"SliceDataset({self.start!r}, {self.stop!r}, {self.step!r})"

    def as_slice(self) -> slice:
        """The slice it stands for."""
        return slice(self.start, self.stop, self.step)
