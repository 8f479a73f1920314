"""Records of TensorFlow Datasets: by random access, or read in order."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from kauldron.data import py
from kauldron.data.engine.batches import current_share
from kauldron.data.engine.shuffles import EpochOrder
from kauldron.data.in_memory import check_epochs
from kauldron.data.py.catalogs import import_tfds, names_of_labels
from kauldron.data.tf.pipeline import TFDataPipeline, WithShuffleBuffer
from kauldron.data.transforms.values import tf
from kauldron.errors import a_type
from kauldron.immutabledict import unfreeze


@dataclasses.dataclass(frozen=True, eq=False)
class Tfds(TFDataPipeline):
    """A data set of TensorFlow Datasets that was prepared as ArrayRecord.

    The whole data is shuffled, in the order of `kd.data.py.Tfds`, then shared by the
    processes.

    Attributes:
      name: Of the data set, such as "mnist" or "imagenet2012:5.*.*".
      split: Such as "train" or "train[:90%]".
      data_dir: Where it was prepared; by default `~/tensorflow_datasets`.
      decoders: Instructions how to decode features; see TensorFlow Datasets.
      cache: Whether to keep decoded records in memory.
      shuffle: Whether each epoch has an order of its own.
      shard_drop_remainder: Whether all processes get equally many records.
      num_epochs: `None` for endless data.
    """

    name: str = dataclasses.field(kw_only=False)
    split: str = dataclasses.field(kw_only=True)
    data_dir: Any = dataclasses.field(default=None, kw_only=True)
    decoders: Any = dataclasses.field(default=None, kw_only=True)
    cache: bool = dataclasses.field(default=False, kw_only=True)
    shuffle: bool = dataclasses.field(default=True, kw_only=True)
    shard_drop_remainder: bool = dataclasses.field(default=True, kw_only=True)
    num_epochs: int | None = dataclasses.field(default=None, kw_only=True)

    _supports_symbolic_checkpoint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epochs(self)

    @functools.cached_property
    def _source(self) -> Any:
        return py.Tfds(
            self.name,
            split=self.split,
            data_dir=self.data_dir,
            decoders=self.decoders,
            shuffle=False,
        ).data_source

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` where the features name none."""
        return names_of_labels(self._source.dataset_info.features)

    def ds_for_current_process(self, rng: Any) -> Any:
        seed = rng.fold_in("shuffle").as_seed() if self.shuffle else None
        reader = _RecordReader(self._source, seed=seed, cache=self.cache)
        return self._positions().map(reader.read, num_parallel_calls=tf.data.AUTOTUNE)

    def _positions(self) -> Any:
        """Return positions of this process in the shuffled, repeated stream."""
        share = current_share()
        if not len(self._source):
            raise ValueError(f"{self.name!r} has no records in split {self.split!r}.")
        if self.num_epochs is None:
            return tf.data.Dataset.counter(share.index, share.count)
        total = self.num_epochs * len(self._source)
        if self.shard_drop_remainder:
            total -= total % share.count
        return tf.data.Dataset.range(share.index, total, share.count)


class _RecordReader:
    """Reads the record at a stream position from within a TensorFlow graph."""

    def __init__(self, source: Any, *, seed: int | None, cache: bool):
        self._size = len(source)
        self._order = None if seed is None else EpochOrder(self._size, seed)
        self._get: Callable[[int], Any] = source.__getitem__
        if cache:
            self._get = functools.lru_cache(maxsize=None)(source.__getitem__)
        self._spec = _record_spec(source)
        self._specs = tf.nest.flatten(self._spec)

    def read(self, position: Any) -> Any:
        tensors = tf.numpy_function(
            self._read_numpy,
            [position],
            [spec.dtype for spec in self._specs],
            stateful=False,
        )
        for tensor, spec in zip(tensors, self._specs):
            tensor.set_shape(spec.shape)
        return tf.nest.pack_sequence_as(self._spec, tensors)

    def _read_numpy(self, position: Any) -> list[np.ndarray]:
        epoch, index = divmod(int(position), self._size)
        if self._order is not None:
            (index,) = self._order(np.array([epoch]), np.array([index])).tolist()
        record = _leaves(self._get(index), self._spec)
        return [
            np.asarray(leaf, spec.dtype.as_numpy_dtype)
            for leaf, spec in zip(record, self._specs)
        ]


def _leaves(record: Any, spec: Any) -> list[Any]:
    """Return the leaves of a record in the order of TensorFlow's flattened spec."""
    if not isinstance(spec, Mapping):
        return [record]
    return [leaf for key in sorted(spec) for leaf in _leaves(record[key], spec[key])]


def _record_spec(source: Any) -> Any:
    spec = source.dataset_info.features.get_tensor_spec()
    for leaf in tf.nest.flatten(spec):
        if not isinstance(leaf, tf.TensorSpec):
            raise TypeError(
                f"A feature of the data set is {a_type(leaf)}, which has no"
                " tensor form here; use kd.data.tf.TfdsLegacy."
            )
    # Decoders change what a feature holds; only a record can tell.
    return spec if source.decoders is None else _spec_of(source[0], spec)


def _spec_of(record: Any, spec: Any) -> Any:
    if isinstance(record, Mapping):
        known = spec if isinstance(spec, Mapping) else {}
        return {key: _spec_of(value, known.get(key)) for key, value in record.items()}
    array = np.asarray(record)
    dtype = tf.string if array.dtype.kind in "OSU" else tf.as_dtype(array.dtype)
    if isinstance(spec, tf.TensorSpec) and spec.shape.rank == array.ndim:
        return tf.TensorSpec(spec.shape, dtype)
    return tf.TensorSpec([None] * array.ndim, dtype)


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

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` where the features name none."""
        tfds = import_tfds("kd.data.tf.TfdsLegacy")
        builder = tfds.builder(self.name, data_dir=self.data_dir)
        return names_of_labels(builder.info.features)

    def ds_for_current_process(self, rng: Any) -> Any:
        tfds = import_tfds("kd.data.tf.TfdsLegacy")
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
