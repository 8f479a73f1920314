"""The entry of `transforms=` that keeps some of the records."""

from __future__ import annotations

import dataclasses

_PARTS = ("start", "stop", "step")


@dataclasses.dataclass(frozen=True)
class SliceDataset:
    """Keep some of the records, chosen as `slice` does: `(stop)`, `(start, stop[, step])`.

    Each part can also be given by its name.

    Among the transforms of a source it selects records of the source, before shuffling
    and sharding: the same ones in every epoch and on every process.

    >>> SliceDataset(10)
    SliceDataset(None, 10, None)
    >>> SliceDataset(2, 10, 2).as_slice()
    slice(2, 10, 2)
    >>> SliceDataset(start=2, stop=10)
    SliceDataset(2, 10, None)
    """

    start: int | None
    stop: int | None
    step: int | None

    def __init__(
        self,
        *args: int | None,
        start: int | None = ...,  # pyright: ignore[reportArgumentType]
        stop: int | None = ...,  # pyright: ignore[reportArgumentType]
        step: int | None = ...,  # pyright: ignore[reportArgumentType]
    ):
        named = {"start": start, "stop": stop, "step": step}
        named = {name: value for name, value in named.items() if value is not ...}
        if len(args) > 3 or not (args or named):
            raise TypeError(
                "SliceDataset takes (stop), (start, stop) or (start, stop, step); got"
                f" {len(args)} arguments."
            )
        is_stop = len(args) == 1 and "stop" not in named
        given = dict(zip(("stop",) if is_stop else _PARTS, args))
        for name in _PARTS:
            if name in given and name in named:
                raise TypeError(f"SliceDataset got its {name} twice.")
            value = (given | named).get(name)
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
