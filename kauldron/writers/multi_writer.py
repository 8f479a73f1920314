"""Several writers as one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kauldron.writers.writer import (
    COLLECTION_NOT_SET,
    FlushedTimer,
    WriterBase,
    with_collection,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiWriter(WriterBase):
    """Hands everything to each of its writers.

    Attributes:
      writers: The writers; collection and workdir are set on all of them.
    """

    __root_cfg_fields_to_recurse__: ClassVar[tuple[str, ...]] = ("writers",)

    writers: Sequence[WriterBase] = ()

    def __post_init__(self) -> None:
        writers = tuple(self.writers)
        for index, writer in enumerate(writers):
            if not isinstance(writer, WriterBase):
                raise TypeError(
                    f"MultiWriter.writers[{index}] must be a writer, got "
                    f"{type(writer).__name__}: {writer!r}"
                )
        if self.collection != COLLECTION_NOT_SET:
            writers = tuple(with_collection(w, self.collection) for w in writers)
        object.__setattr__(self, "writers", writers)

    def write_step_metrics(
        self,
        *,
        step: int,
        aux: Any,
        schedules: Mapping[str, Any],
        log_summaries: bool,
        timer: Any = None,
        flush: bool = True,
    ) -> None:
        # Computed and timed once, not once for each writer.
        output = aux.compute(flatten=True) if hasattr(aux, "compute") else aux
        flushed = FlushedTimer(timer.flush_metrics()) if timer is not None else None
        for writer in self.writers:
            writer.write_step_metrics(
                step=step,
                aux=output,
                schedules=schedules,
                log_summaries=log_summaries,
                timer=flushed,
                flush=flush,
            )

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        for writer in self.writers:
            writer.write_scalars(step, scalars)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:  # all of them, even if one fails
            for writer in self.writers:
                stack.callback(writer.close)


def _forward(name: str) -> Any:
    def write(self: MultiWriter, *args: Any, **kwargs: Any) -> None:
        for writer in self.writers:
            getattr(writer, name)(*args, **kwargs)

    write.__name__ = name
    write.__doc__ = getattr(WriterBase, name).__doc__
    return write


for _name in (
    "write_values",
    "write_summaries",
    "write_images",
    "write_histograms",
    "write_pointcloud",
    "write_videos",
    "write_audios",
    "write_texts",
    "write_hparams",
    "write_start",
    "write_config",
    "write_param_overview",
    "write_element_spec",
    "write_context_structure",
    "resume",
    "flush",
    "check",
):
    setattr(MultiWriter, _name, _forward(_name))
