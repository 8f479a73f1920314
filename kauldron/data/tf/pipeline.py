"""Pipelines that are a `tf.data.Dataset` underneath."""

from __future__ import annotations

import abc
import dataclasses
import functools
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from kauldron.data.dataset import IterableDataset
from kauldron.data.engine.batches import DropRemainder, current_share
from kauldron.data.engine.entries import SliceDataset, labelled, short_repr
from kauldron.data.in_memory import check_epochs, frozen_transforms
from kauldron.data.iters import Iterator, NonCheckpointableIterator
from kauldron.data.pipeline import Pipeline
from kauldron.data.specs import ArraySpec
from kauldron.data.tf.iterator import TFDataIterator, to_numpy
from kauldron.data.transforms.transform_types import FilterTransform, MapTransform
from kauldron.data.transforms.values import tf
from kauldron.errors import ReadableKeyError


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TFDataPipeline(Pipeline):
    """Batches from a `tf.data.Dataset`, as NumPy arrays.

    A sub-class implements `ds_for_current_process`. TensorFlow then sees no GPU: those
    are for JAX.

    Attributes:
      batch_drop_remainder: Whether records at the end that fill no batch are dropped.
      transforms: List or dict of transforms: those of `kd.data` and `kd.data.tf`,
        functions of one record, objects with `random_map(features, seed)`.
      tf_data_options: `tf.data.Options` that win over ours.
      prefetch_size: Batches that are prepared ahead; 0 for none. By default TensorFlow
        decides, for a pipeline that is not part of a mixture.
      checkpoint: Whether checkpoints hold the position. By default where the class can
        do so cheaply.
    """

    batch_drop_remainder: bool = True
    transforms: Sequence[Any] | Mapping[str, Any] = ()
    tf_data_options: Any = None
    prefetch_size: int | Literal["auto"] = "auto"
    checkpoint: bool | None = None

    _supports_symbolic_checkpoint: ClassVar[bool] = False

    __root_cfg_fields_to_recurse__ = ("transforms",)

    def __post_init__(self) -> None:
        if importlib.util.find_spec("tensorflow") is None:
            raise ImportError('kd.data.tf needs TensorFlow: pip install "kauldron[tf]"')
        super().__post_init__()
        object.__setattr__(self, "transforms", frozen_transforms(self.transforms))
        check_transforms(self.transforms)

    # ------------------------------------------------------------------------
    # What sub-classes give
    # ------------------------------------------------------------------------

    @abc.abstractmethod
    def ds_for_current_process(self, rng: Any) -> Any:
        """Return records of this process only, one by one, as a `tf.data.Dataset`.

        Args:
          rng: A `kd.random.PRNGKey`, the same on all processes.
        """

    def transform_ds(self, ds: Any, *, rng: Any) -> Any:
        """Return the data set after `transforms` and batching."""
        ds = apply_transforms(ds, self.transforms, rng)
        size = self.host_batch_size
        if size is None:
            return ds
        return ds.batch(size, drop_remainder=self.batch_drop_remainder)

    def with_remainder(self, remainder: DropRemainder) -> IterableDataset:
        if current_share().count > 1 or not self.batch_size:
            return self  # processes may have more or fewer records, and must not wait
        is_cut = remainder is DropRemainder.DROP
        ds = self
        if is_cut != self.batch_drop_remainder:
            ds = dataclasses.replace(self, batch_drop_remainder=is_cut)
        return super(TFDataPipeline, ds).with_remainder(remainder)

    def ds_with_transforms(self, rng: Any) -> Any:
        """Return the whole pipeline as a `tf.data.Dataset`, to be part of a mixture."""
        ds = self.transform_ds(self.ds_for_current_process(rng), rng=rng)
        if self.prefetch_size != "auto" and self.prefetch_size:
            ds = ds.prefetch(self.prefetch_size)
        return ds

    # ------------------------------------------------------------------------
    # What consumers ask
    # ------------------------------------------------------------------------

    @property
    def gives_single_records(self) -> bool:
        return self.batch_size == 0 and not any(ds.batch_size for ds in self._children)

    def __iter__(self) -> Iterator:
        iterator = iter(self._root_ds)
        if self._is_checkpointed:
            return TFDataIterator(source=self, iter=iterator)
        return NonCheckpointableIterator(source=self, iter=map(to_numpy, iterator))

    def __len__(self) -> int:
        cardinality = int(self._root_ds.cardinality())
        if cardinality == tf.data.INFINITE_CARDINALITY:
            raise TypeError(
                f"{type(self).__name__} has no end, and thus no number of batches: set "
                "`num_epochs=1` or more."
            )
        if cardinality == tf.data.UNKNOWN_CARDINALITY:
            raise TypeError(
                f"The number of batches of {type(self).__name__} is unknown: tf.data "
                "cannot tell it after a filter. Iterate over it."
            )
        return cardinality

    @functools.cached_property
    def element_spec(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Spec of a batch of this process; `None` stands for unknown sizes."""
        return tf.nest.map_structure(_as_array_spec, self._root_ds.element_spec)

    @functools.cached_property
    def _root_ds(self) -> Any:
        """The data set that is iterated. One object, since it remembers its shuffles."""
        from kauldron.random import PRNGKey

        _hide_gpus()
        ds = self.ds_with_transforms(
            PRNGKey(self.effective_seed % 2**32).fold_in("kmix")
        )
        if self.prefetch_size == "auto":
            ds = ds.prefetch(tf.data.AUTOTUNE)
        return ds.with_options(self._options())

    @property
    def _children(self) -> Sequence[TFDataPipeline]:
        """The pipelines that a mixture is made of."""
        return ()

    @property
    def _is_checkpointed(self) -> bool:
        if self.checkpoint is None:
            return self._can_checkpoint_symbolically
        return self.checkpoint

    @property
    def _can_checkpoint_symbolically(self) -> bool:
        if self._children:
            return all(ds._can_checkpoint_symbolically for ds in self._children)
        return self._supports_symbolic_checkpoint

    def _options(self) -> Any:
        options = tf.data.Options()
        options.experimental_optimization.map_parallelization = True
        options.experimental_warm_start = True
        options.threading.private_threadpool_size = os.cpu_count() or 1
        options.threading.max_intra_op_parallelism = 1
        if self._is_checkpointed and self._can_checkpoint_symbolically:
            options.experimental_symbolic_checkpoint = True
        if self.tf_data_options is not None:
            options = options.merge(self.tf_data_options)
        return options


def _as_array_spec(spec: Any) -> ArraySpec:
    if not isinstance(spec, tf.TensorSpec):
        raise TypeError(
            f"A batch holds {spec}; only tensors can be batches. Turn it into a tensor in"
            " a transform, or drop it with kd.data.Elements(drop=[...])."
        )
    if spec.shape.rank is None:
        raise ValueError(f"The number of dimensions of {spec} is unknown.")
    return ArraySpec(tuple(spec.shape), spec.dtype.as_numpy_dtype)


def _hide_gpus() -> None:
    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:  # the user's own code uses them already
        return


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
        check_epochs(self)

    def transform_ds(self, ds: Any, *, rng: Any) -> Any:
        if self.cache:
            ds = ds.cache()
        if self.shuffle:
            process_rng = rng.fold_in("shuffle").fold_in(current_share().index)
            ds = ds.shuffle(self.shuffle_buffer_size, seed=process_rng.as_seed())
        ds = ds.repeat(self.num_epochs)
        return super().transform_ds(ds, rng=rng)


Transforms = Sequence[Any] | Mapping[str, Any]


def check_transforms(transforms: Transforms) -> None:
    """Raise `TypeError` or `ValueError` for what cannot be applied to tensors."""
    for label, transform in labelled(transforms):
        name = type(transform).__name__
        is_for_numpy = getattr(type(transform), "__kd_data_backend__", None) == "py"
        if is_for_numpy or isinstance(transform, SliceDataset):
            raise ValueError(
                f"{label}: {name} works on NumPy arrays; in a kd.data.tf pipeline use"
                f" kd.data.tf.{name}, or move the pipeline to kd.data.py."
            )
        if not callable(transform) and not hasattr(transform, "random_map"):
            raise TypeError(
                f"{label} is a {name} ({short_repr(transform)}), which is not a"
                " transform. Accepted are: kd.data.MapTransform,"
                " kd.data.FilterTransform, the transforms of kd.data.tf, objects with"
                " random_map(features, seed), and functions of one record."
            )


def apply_transforms(ds: Any, transforms: Transforms, rng: Any) -> Any:
    """Return the data set of single records after all entries.

    Each record travels with its position in the stream of all processes, from which
    random transforms get their seeds.
    """
    entries = labelled(transforms)
    if not entries:
        return ds
    share = current_share()
    ds = ds.enumerate().map(
        lambda index, record: (index * share.count + share.index, record)
    )
    for number, (label, transform) in enumerate(entries):
        try:
            ds = _apply(ds, transform, rng.fold_in(number))
        except Exception as error:
            error.add_note(f"In {label} {short_repr(transform)}")
            raise
    return _map(ds, lambda position, record: record)


def _apply(ds: Any, transform: Any, rng: Any) -> Any:
    if hasattr(transform, "random_map"):
        root = tf.constant(_seed_words(rng), tf.int32)

        def random_map(position: Any, record: Any) -> Any:
            seed = tf.random.experimental.stateless_fold_in(root, position)
            return position, transform.random_map(record, seed)

        return _map(ds, random_map)
    if isinstance(transform, FilterTransform):
        return ds.filter(lambda position, record: transform.filter(record))
    function = transform.map if isinstance(transform, MapTransform) else transform
    return _map(ds, lambda position, record: (position, function(record)))


def _map(ds: Any, function: Callable[..., Any]) -> Any:
    def with_plain_errors(*args: Any) -> Any:
        try:
            return function(*args)
        except ReadableKeyError as error:  # TensorFlow hands on Python's own types only
            raise KeyError(str(error)) from error

    return ds.map(with_plain_errors, num_parallel_calls=tf.data.AUTOTUNE)


def _seed_words(rng: Any) -> list[int]:
    words = (rng.fold_in("high").as_seed(), rng.fold_in("low").as_seed())
    return [word - 2**32 if word >= 2**31 else word for word in words]
