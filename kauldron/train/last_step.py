"""At which step training stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from kauldron.data.dataset import TakeDataset

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer


class DataEndedError(ValueError):
    """The training data has fewer batches than the steps that were asked for."""


def find_last_step(trainer: Trainer) -> int | None:
    """The number of updates after which training stops.

    Returns:
      The step, or `None` if it is known only when the data ends.
    """
    given = [
        number
        for number in (trainer.num_train_steps, trainer.stop_after_steps)
        if number is not None
    ]
    if trainer.num_train_steps is not None:
        return min(given)
    length = _length(trainer.train_ds)
    if length is not None:
        return min([*given, _smallest_of_all_processes(length)])
    return given[0] if given else None


def check_has_batches(trainer: Trainer) -> None:
    """Raise `ValueError` if there is nothing to train on."""
    if _length(trainer.train_ds) == 0:
        raise ValueError(
            "`trainer.train_ds` has no batch to train on: it is empty, or has fewer "
            "records than one batch."
        )


def check_ends(trainer: Trainer) -> None:
    """Raise `ValueError` if nothing says when training stops."""
    given = (trainer.num_train_steps, trainer.stop_after_steps)
    if any(number is not None for number in given):
        return
    if is_endless(trainer.train_ds):
        raise ValueError(
            "`trainer.num_train_steps` is None and `trainer.train_ds` repeats forever: "
            "set `cfg.num_train_steps`, `cfg.stop_after_steps`, or "
            "`cfg.train_ds.num_epochs`."
        )
    if _length(trainer.train_ds) is None and jax.process_count() > 1:
        raise ValueError(
            "`trainer.num_train_steps` is None and the length of `trainer.train_ds` is "
            "unknown: with several processes, set `cfg.num_train_steps`."
        )


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:
        return None


def is_endless(dataset: Any) -> bool:
    """Whether a data set says that it repeats forever."""
    while not hasattr(dataset, "num_epochs"):
        if isinstance(dataset, TakeDataset) or not hasattr(dataset, "parent"):
            return False
        dataset = dataset.parent
    return dataset.num_epochs is None


def _smallest_of_all_processes(number: int) -> int:
    if jax.process_count() == 1:
        return number
    return int(multihost_utils.process_allgather(np.asarray(number)).min())
