"""Keep checkpoints at steps that grow exponentially."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class ExpStep:
    """Keeps step 0 and the steps `interval * base**k`.

    Attributes:
      interval: The first step to keep, after 0.
      base: How many times further the next one is.

    Example:
      >>> policy = ExpStep(interval=100, base=2)
      >>> [step for step in range(0, 1000, 50) if policy.keeps(step)]
      [0, 100, 200, 400, 800]
    """

    interval: int = 100
    base: int = 2

    def __post_init__(self) -> None:
        for name, least in (("interval", 1), ("base", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(
                    f"ExpStep.{name} must be an integer of at least {least}, got "
                    f"{value!r}."
                )

    def keeps(self, step: int) -> bool:
        """Whether the checkpoint of a step is kept."""
        quotient, rest = divmod(step, self.interval)
        if rest:
            return False
        while quotient > 1 and quotient % self.base == 0:
            quotient //= self.base
        return quotient <= 1

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: Any = None
    ) -> list[bool]:
        """Which checkpoints to keep."""
        del context
        return [self.keeps(info.step) for info in checkpoints]
