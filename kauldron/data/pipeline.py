"""The base of every pipeline: what the trainer knows about its data."""

from __future__ import annotations

import dataclasses
import functools
import logging
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron.config_base import ROOT_CFG_REF, RootCfgRef, UpdateFromRootCfg
from kauldron.data.dataset import IterableDataset, PadDataset
from kauldron.data.engine.batches import BatchSize, DropRemainder
from kauldron.data.specs import specs_of
from kauldron.immutabledict import ImmutableDict

_log = logging.getLogger(__name__)

_STANDALONE_SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Pipeline(IterableDataset, UpdateFromRootCfg):
    """Yields batches of this process. Sub-classes batch, shuffle and shard.

    A sub-class implements `__iter__` (a generator will do; what it returns can be saved
    in checkpoints if it has `get_state` and `set_state`) and `__len__` if the number of
    batches is known.

    Attributes:
      batch_size: Over all processes. `None` or 0: no batches, single records.
      seed: Of shuffling and random transforms. By default that of the trainer; 0 where
        the pipeline is used on its own.
    """

    batch_size: int | None = None
    seed: int | None = ROOT_CFG_REF.seed

    def __post_init__(self) -> None:
        if hasattr(super(), "__post_init__"):
            super().__post_init__()  # pyright: ignore[reportAttributeAccessIssue]
        batch_size = _as_integer(self, "batch_size")
        if batch_size is not None and batch_size < 0:
            name = type(self).__name__
            raise ValueError(
                f"{name}(batch_size={batch_size}): it is negative; expected 0 (single"
                " records) or more."
            )
        object.__setattr__(self, "batch_size", batch_size)
        if not isinstance(self.seed, RootCfgRef):
            object.__setattr__(self, "seed", _as_integer(self, "seed"))

    @property
    def host_batch_size(self) -> int | None:
        """Records of each batch on this process, `None` without batches.

        Raises:
          ValueError: The number of processes does not divide the batch size.
        """
        return BatchSize(self.batch_size).per_process if self.batch_size else None

    @property
    def effective_seed(self) -> int:
        """The seed in use: that of the pipeline or trainer, or 0 where there is none."""
        if isinstance(self.seed, int):
            return self.seed
        return self._standalone_seed

    @functools.cached_property
    def _standalone_seed(self) -> int:
        _log.info(
            "%s has no seed and belongs to no trainer; its seed is %d.",
            type(self).__name__,
            _STANDALONE_SEED,
        )
        return _STANDALONE_SEED

    def _assert_root_cfg_resolved(self) -> None:
        """Do nothing: pipelines work without a trainer, see `effective_seed`."""

    @functools.cached_property
    def element_spec(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The tree of one batch of this process, with `ArraySpec` in place of arrays."""
        return specs_of(self.first())

    def with_remainder(self, remainder: DropRemainder) -> IterableDataset:
        """Return data whose smaller batches are kept as they come, or filled up."""
        if remainder is not DropRemainder.PAD or not self.batch_size:
            return self
        return PadDataset(parent=self, size=self.host_batch_size or 0)

    # ------------------------------------------------------------------------
    # Equality and copies
    # ------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _comparable(self) == _comparable(other)

    def __hash__(self) -> int:
        return hash(_comparable(self))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or pickle holds: not what was opened or computed."""
        return {k: v for k, v in self.__dict__.items() if not _is_cache(type(self), k)}


def _as_integer(pipeline: Pipeline, name: str) -> int | None:
    value = getattr(pipeline, name)
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"{type(pipeline).__name__}({name}={value!r}): expected an integer, got"
            f" {type(value).__name__}."
        ) from None


def _comparable(pipeline: Any) -> tuple[Any, ...]:
    fields = dataclasses.fields(pipeline)
    values = (getattr(pipeline, field.name) for field in fields if field.compare)
    return (type(pipeline), *map(_token, values))


def _token(value: Any) -> Any:
    """Return a field's value, or its identity where it has no hash.

    A list of records is thus only equal to itself, and never compared record by record.
    """
    if isinstance(value, dict):
        return (dict, *((key, _token(item)) for key, item in value.items()))
    try:
        hash(value)
    except TypeError:
        return ("id", id(value))
    return (type(value), value)


def _is_cache(cls: type, name: str) -> bool:
    is_field = name in {field.name for field in dataclasses.fields(cls)}
    computed = isinstance(getattr(cls, name, None), functools.cached_property)
    return computed and not is_field


def frozen_transforms(transforms: Any) -> Any:
    """Return the transforms in containers that do not change and have a hash."""
    if isinstance(transforms, Mapping):
        return ImmutableDict(transforms)
    return tuple(transforms) if isinstance(transforms, list) else transforms


def check_choice(pipeline: Any, name: str) -> None:
    """Raise unless the field is a bool or "auto"."""
    value = getattr(pipeline, name)
    if not isinstance(value, bool) and value != "auto":
        raise ValueError(
            f"{type(pipeline).__name__}({name}={value!r}): expected True, False or"
            " 'auto'."
        )


def check_epochs(pipeline: Any) -> None:
    """Raise unless `shuffle` is a bool, and `num_epochs` at least 1 or `None`."""
    shuffle = getattr(pipeline, "shuffle", False)
    if not isinstance(shuffle, bool | np.bool_ | int):
        raise TypeError(
            f"{type(pipeline).__name__}(shuffle={shuffle!r}): expected True or False."
        )
    epochs = pipeline.num_epochs
    if epochs is None:
        return
    is_integer = isinstance(epochs, int | np.integer) and not isinstance(epochs, bool)
    if not is_integer or epochs < 1:
        raise ValueError(
            f"{type(pipeline).__name__}(num_epochs={epochs!r}): expected an integer of"
            " at least 1, or None for endless data."
        )
