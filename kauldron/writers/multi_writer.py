"""Several writers as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from kauldron.writers.writer import COLLECTION_NOT_SET, WriterBase


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
        if self.collection != COLLECTION_NOT_SET:
            writers = tuple(
                w
                if w.collection == self.collection
                else w.replace(collection=self.collection)
                for w in writers
            )
        object.__setattr__(self, "writers", writers)

    def write_values(self, step: int, output: Any, **kwargs: Any) -> None:
        for writer in self.writers:
            writer.write_values(step, output, **kwargs)

    def write_scalars(self, step: int, scalars: Any) -> None:
        for writer in self.writers:
            writer.write_scalars(step, scalars)

    def write_start(self, **kwargs: Any) -> None:
        for writer in self.writers:
            writer.write_start(**kwargs)

    def resume(self, *, step: int) -> None:
        for writer in self.writers:
            writer.resume(step=step)

    def flush(self) -> None:
        for writer in self.writers:
            writer.flush()

    def close(self) -> None:
        for writer in self.writers:
            writer.close()


def _forward(name: str) -> Any:
    def write(self: MultiWriter, *args: Any, **kwargs: Any) -> None:
        for writer in self.writers:
            getattr(writer, name)(*args, **kwargs)

    write.__name__ = name
    write.__doc__ = getattr(WriterBase, name).__doc__
    return write


for _name in (
    "write_summaries",
    "write_images",
    "write_histograms",
    "write_pointcloud",
    "write_videos",
    "write_audios",
    "write_texts",
    "write_hparams",
    "write_config",
    "write_param_overview",
    "write_element_spec",
    "write_context_structure",
):
    setattr(MultiWriter, _name, _forward(_name))
