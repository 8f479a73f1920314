"""Batches that cannot be trained on, found from their specs."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.sharding import NamedSharding

from kauldron import kontext
from kauldron.sharding import device_mesh
from kauldron.sharding.tree import flatten_with_shardings


def check_numbers(spec: Any) -> None:
    """Refuse texts, which no device takes."""
    check_arrays(spec)
    for path, leaf in kontext.flatten_with_path(spec).items():
        if np.dtype(leaf.dtype).kind in "OSU":
            raise TypeError(
                f"`trainer.train_ds` gives texts under {path!r}, which cannot be put on "
                f"a device. Drop them: `kd.data.Elements(drop=[{path!r}])`."
            )


def check_arrays(spec: Any) -> None:
    """Refuse lists and plain numbers."""
    for path, leaf in kontext.flatten_with_path(spec).items():
        if not hasattr(leaf, "dtype"):
            raise TypeError(
                f"`trainer.train_ds` gives a {type(leaf).__name__} under {path!r}: "
                "batches hold arrays, such as `np.asarray(...)` makes."
            )


def check_divisible(spec: Any, sharding: Any) -> None:
    """Refuse batches that the devices cannot share.

    Args:
      spec: Specs of the whole batch, over all processes.
      sharding: The sharding tree of the batch; `None` for the default.
    """
    default = device_mesh.FIRST_DIM
    for leaf in flatten_with_shardings(spec, default if sharding is None else sharding):
        here = leaf.sharding or default
        if not isinstance(here, NamedSharding) or None in leaf.value.shape:
            continue
        try:
            here.shard_shape(tuple(leaf.value.shape))
        except (ValueError, IndexError) as error:
            raise ValueError(
                f"`batch` of shape {tuple(leaf.value.shape)} at {leaf.name} cannot be "
                f"divided among {here.mesh.size} devices by {here.spec}: its first "
                "dimension must be a multiple of their number. Change "
                "`cfg.train_ds.batch_size`, or `cfg.sharding.batch`."
            ) from error
