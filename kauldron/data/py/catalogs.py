"""Records of data set catalogs: TensorFlow Datasets and Hugging Face."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kauldron.data.engine import trees
from kauldron.data.py.sources import DataSourceBase, PathLike
from kauldron.immutabledict import ImmutableDict, unfreeze


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
        tfds = import_tfds("kd.data.py.Tfds")
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
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` where the features name none."""
        return names_of_labels(self.data_source.dataset_info.features)

    @property
    def _name(self) -> str:
        where = f", data_dir={str(self.data_dir)!r}" if self.data_dir else ""
        return f"Tfds({self.name!r}, split={self.split!r}{where})"


def import_tfds(user: str) -> types.ModuleType:
    """Return the module `tensorflow_datasets`, or raise and name who needs it."""
    try:
        import tensorflow_datasets
    except ImportError as error:
        raise ImportError(
            f'{user} needs TensorFlow Datasets: pip install "kauldron[tfds]"'
        ) from error
    return tensorflow_datasets


@dataclasses.dataclass(frozen=True, eq=False)
class HuggingFace(DataSourceBase):
    """A data set of the Hugging Face `datasets` library.

    Images become `uint8` arrays.

    Attributes:
      path: Name on the hub, or a folder written by `save_to_disk`, which is opened
        without network.
      config: Name of the configuration, for data sets that have several.
      split: Such as "train" or "train[:90%]".
      data_dir: See `datasets.load_dataset`.
      cache_dir: See `datasets.load_dataset`.
      shuffle: Whether each epoch has an order of its own.
    """

    path: PathLike = dataclasses.field(kw_only=False)
    config: str | None = dataclasses.field(default=None, kw_only=False)
    split: str = dataclasses.field(kw_only=True)
    data_dir: PathLike | None = dataclasses.field(default=None, kw_only=True)
    cache_dir: PathLike | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "path", os.fspath(self.path))

    @functools.cached_property
    def data_source(self) -> Any:  # pyright: ignore
        try:
            import datasets
        except ImportError as error:
            raise ImportError(
                "kd.data.py.HuggingFace needs the datasets library: pip install datasets"
                ' (or "kauldron[huggingface]")'
            ) from error
        if _is_saved_on_disk(self.path):
            return HuggingFaceRecords(self._open_folder(datasets))
        try:
            dataset = datasets.load_dataset(
                self.path,
                name=self.config,
                split=self.split,
                data_dir=self.data_dir,
                cache_dir=self.cache_dir,
            )
        except Exception as error:
            error.add_note(
                f"While opening {self._name}. Without a network, give the path of a"
                " folder written by `dataset.save_to_disk(path)`."
            )
            raise
        return HuggingFaceRecords(dataset)

    @property
    def _name(self) -> str:
        return f"HuggingFace({self.path!r}, split={self.split!r})"

    def _open_folder(self, datasets: Any) -> Any:
        dataset = datasets.load_from_disk(self.path)
        if not isinstance(dataset, dict):
            return dataset
        if self.split not in dataset:
            raise ValueError(
                f"{self._name}: no such split in the folder; it has {sorted(dataset)}."
            )
        return dataset[self.split]


class HuggingFaceRecords:
    """Random access to the records of a `datasets.Dataset`, with images as arrays."""

    gives_fresh_records = True

    def __init__(self, dataset: Any):
        self._dataset = dataset

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` where the features name none."""
        return names_of_labels(self._dataset.features)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return trees.map_leaves(_image_as_array, self._dataset[index])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        records = self._dataset.__getitems__(list(indices))
        return [trees.map_leaves(_image_as_array, record) for record in records]


def names_of_labels(features: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names of the classes of `label`, or of the only field that has some."""
    named = {
        field: tuple(feature.names)
        for field, feature in features.items()
        if getattr(feature, "names", None)
    }
    if "label" in named:
        return named["label"]
    return next(iter(named.values())) if len(named) == 1 else None


def _is_saved_on_disk(path: Any) -> bool:
    markers = ("state.json", "dataset_dict.json")
    return any(os.path.exists(os.path.join(path, marker)) for marker in markers)


def _image_as_array(leaf: Any) -> Any:
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(leaf, pillow.Image):
        return np.array(leaf, np.uint8)
    return leaf
