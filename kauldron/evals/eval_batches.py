"""Which batches an evaluation sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from kauldron.data.engine.batches import DropRemainder, remainder_of
from kauldron.data.iters import Iterator, as_iterator
from kauldron.train.last_step import is_endless

if TYPE_CHECKING:
    from kauldron import data

_READ_AHEAD = 2


def select_batches(
    ds: data.IterableDataset,
    *,
    num_batches: int | None = None,
    cache: bool = False,
    owner: str,
) -> data.IterableDataset:
    """The batches on the host, limited and cached as asked.

    Args:
      ds: The data, as `every_record` gives it.
      num_batches: How many batches; `None` for all.
      cache: Whether to keep them in memory during the first pass.
      owner: Name of the evaluator, for messages.

    Raises:
      ValueError: There is no end, or no known one where it is needed.
    """
    if num_batches is not None:
        ds = ds.take(num_batches)
    elif is_endless(ds):
        raise ValueError(
            f"The data of evaluator {owner!r} repeats forever: set "
            f"`cfg.evals.{owner}.num_batches`, or `num_epochs=1` in its data."
        )
    if not cache:
        return ds
    if length(ds) is None:
        raise ValueError(
            f"Evaluator {owner!r}: `cache=True` needs `num_batches`, because the length "
            "of its data is unknown."
        )
    return ds.cache()


def every_record(ds: data.IterableDataset) -> data.IterableDataset:
    """The data with its last batch filled up and masked, whatever training does.

    Data that was told to keep its last batch as it is does so on a single device;
    several can only share whole batches.
    """
    keeps = remainder_of(ds) is DropRemainder.KEEP and jax.device_count() == 1
    return ds.with_remainder(DropRemainder.KEEP if keeps else DropRemainder.PAD)


def unpadded(ds: data.IterableDataset) -> data.IterableDataset:
    """The data without filler: a last batch that devices cannot share is dropped."""
    is_single = jax.device_count() == 1
    return ds.with_remainder(DropRemainder.KEEP if is_single else DropRemainder.DROP)


def on_devices(ds: data.IterableDataset, sharding: Any) -> Iterator:
    """The batches on the devices, from the first one; read ahead by a thread."""
    return as_iterator(ds.prefetch(_READ_AHEAD).device_put(sharding))


def length(ds: Any) -> int | None:
    """Number of batches; `None` if it is unknown."""
    try:
        return len(ds)
    except TypeError:
        return None
