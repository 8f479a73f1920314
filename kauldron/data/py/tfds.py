"""Records of TensorFlow Datasets, read without TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from kauldron.data.py.arrays import PathLike
from kauldron.data.py.data_source import DataSourceBase
from kauldron.utils.immutabledict import ImmutableDict, unfreeze


@dataclasses.dataclass(frozen=True, eq=False)
class Tfds(DataSourceBase):
    """A data set of TensorFlow Datasets, prepared as ArrayRecord.

    Attributes:
      name: Of the data set, such as "mnist" or "imagenet2012:5.*.*".
      split: Such as "train" or "train[:90%]".
      data_dir: Where it was prepared; by default `~/tensorflow_datasets`.
      decoders: Instructions how to decode features; see TensorFlow Datasets.
      shuffle: Whether each epoch has an order of its own.
    """

    name: str = dataclasses.field(kw_only=False)
    split: str = dataclasses.field(kw_only=True)
    data_dir: PathLike | None = dataclasses.field(default=None, kw_only=True)
    decoders: Any = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.decoders, dict):
            object.__setattr__(self, "decoders", ImmutableDict(self.decoders))

    @functools.cached_property
    def data_source(self) -> Any:  # pyright: ignore
        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            raise ImportError(
                "kd.data.py.Tfds needs TensorFlow Datasets: pip install"
                ' "kauldron[tfds]"'
            ) from error
        try:
            return tfds.data_source(
                self.name,
                split=self.split,
                data_dir=self.data_dir,
                decoders=unfreeze(self.decoders),
            )
        except NotImplementedError as error:  # no random access
            raise ValueError(
                f"{self._name} is stored as TFRecord, which has no random access."
                ' Prepare it with `file_format="array_record"`, or use'
                " kd.data.tf.TfdsLegacy."
            ) from error
        except Exception as error:
            error.add_note(
                f"While opening {self._name}. If it is not on disk yet, prepare it on a"
                " machine with a network: `tfds.builder(name,"
                ' file_format="array_record").download_and_prepare()`.'
            )
            raise

    @property
    def _name(self) -> str:
        where = f", data_dir={str(self.data_dir)!r}" if self.data_dir else ""
        return f"Tfds({self.name!r}, split={self.split!r}{where})"
