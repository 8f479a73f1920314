"""Records of TensorFlow Datasets, read in order."""

from __future__ import annotations

import dataclasses
from typing import Any

from kauldron.data.processes import current_share
from kauldron.data.tf.shuffle_buffer import WithShuffleBuffer
from kauldron.utils.immutabledict import unfreeze


@dataclasses.dataclass(frozen=True, eq=False)
class TfdsLegacy(WithShuffleBuffer):
    """A data set of TensorFlow Datasets that was prepared as TFRecord.

    Files are read in a random order, records go through a shuffle buffer.

    Attributes:
      name: Of the data set, such as "mnist" or "imagenet2012:5.*.*".
      split: Such as "train" or "train[:90%]".
      data_dir: Where it was prepared; by default `~/tensorflow_datasets`.
      decoders: Instructions how to decode features; see TensorFlow Datasets.
      read_config: A `tfds.ReadConfig`. Where it has no `shuffle_seed`, files are
        shuffled by the seed of the pipeline.
    """

    name: str = dataclasses.field(kw_only=False)
    split: str = dataclasses.field(kw_only=True)
    data_dir: Any = dataclasses.field(default=None, kw_only=True)
    decoders: Any = dataclasses.field(default=None, kw_only=True)
    read_config: Any = dataclasses.field(default=None, kw_only=True)

    def ds_for_current_process(self, rng: Any) -> Any:
        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            raise ImportError(
                "kd.data.tf.TfdsLegacy needs TensorFlow Datasets: pip install"
                ' "kauldron[tfds]"'
            ) from error
        read_config = self.read_config or tfds.ReadConfig()
        if self.shuffle:
            seed = read_config.shuffle_seed
            if seed is None:
                seed = rng.fold_in("files").as_seed() % 2**31
            # Ordered data may be shuffled too: the user asked for it.
            read_config = dataclasses.replace(
                read_config, shuffle_seed=seed, enable_ordering_guard=False
            )
        share = current_share()
        split = tfds.even_splits(self.split, share.count, drop_remainder=True)
        try:
            builder = tfds.builder(self.name, data_dir=self.data_dir)
            return builder.as_dataset(
                split=split[share.index],
                shuffle_files=self.shuffle,
                decoders=unfreeze(self.decoders),
                read_config=read_config,
            )
        except NotImplementedError as error:  # ArrayRecord
            raise ValueError(
                f"{self.name!r} is not stored as TFRecord; use kd.data.tf.Tfds or"
                " kd.data.py.Tfds."
            ) from error
        except Exception as error:
            error.add_note(
                f"While opening TfdsLegacy({self.name!r}, split={self.split!r},"
                f" data_dir={self.data_dir!r}). If it is not on disk yet, prepare it on a"
                " machine with a network: `tfds.builder(name).download_and_prepare()`."
            )
            raise
