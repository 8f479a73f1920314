"""Shuffling with a buffer, for data that can only be read in order."""

from __future__ import annotations

import dataclasses
from typing import Any

from kauldron.data.in_memory import check_num_epochs
from kauldron.data.processes import current_share
from kauldron.data.tf.tf_data_pipeline import TFDataPipeline


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WithShuffleBuffer(TFDataPipeline):
    """Base of pipelines that read in order: caches, shuffles, repeats.

    Iterating the same object again shuffles differently; a new object with the same
    fields starts over.

    Attributes:
      cache: Whether to keep the records in memory, before they are shuffled.
      shuffle: Whether to shuffle.
      shuffle_buffer_size: Out of how many records the next one is drawn. Must be given
        to shuffle.
      num_epochs: `None` for endless data.
    """

    cache: bool = False
    shuffle: bool = True
    shuffle_buffer_size: int | None = None
    num_epochs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shuffle and not self.shuffle_buffer_size:
            raise ValueError(
                f"{type(self).__name__}(shuffle=True) needs a shuffle_buffer_size: out of how many"
                " records to draw the next one."
            )
        check_num_epochs(self)

    def transform_ds(self, ds: Any, *, rng: Any) -> Any:
        if self.cache:
            ds = ds.cache()
        if self.shuffle:
            process_rng = rng.fold_in("shuffle").fold_in(current_share().index)
            ds = ds.shuffle(self.shuffle_buffer_size, seed=process_rng.as_seed())
        ds = ds.repeat(self.num_epochs)
        return super().transform_ds(ds, rng=rng)
