"""Writers that write nothing, or only a part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kauldron.writers.writer import WriterBase


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoopWriter(WriterBase):
    """Writes nothing; what `cfg.writer = None` means."""

    def write_step_metrics(self, **kwargs: Any) -> None:
        del kwargs

    def write_start(self, **kwargs: Any) -> None:
        del kwargs

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        del step, scalars

    def _unsupported(self, kind: str, values: Mapping[str, Any]) -> None:
        del kind, values
