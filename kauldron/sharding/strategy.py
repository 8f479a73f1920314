"""`ShardingStrategy`, the shardings of an experiment, and a rule for large arrays."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import logging
import warnings
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import KeyPath

from kauldron.immutabledict import freeze
from kauldron.sharding import device_mesh
from kauldron.sharding.tree import ShardingTree, nbytes

if TYPE_CHECKING:
    from kauldron.train import TrainState


_SHARDING_TREES = ("batch", "params", "collections", "opt_state", "aux")


def _check_sharding_tree(name: str, tree: ShardingTree) -> None:
    """Raise a `TypeError` that names the argument and the leaf that is wrong."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not isinstance(leaf, jax.sharding.Sharding) and not callable(leaf):
            where = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise TypeError(
                f"{name} has {leaf!r}{where}: expected a sharding such as "
                "`kd.sharding.REPLICATED` or `kd.sharding.FSDPSharding()`, None, or a "
                "tree of them."
            )


class _AcceptsOlderNames(type):
    """`ds=` stands for `batch=`, in subclasses too."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            # `dataclasses.replace(strategy, ds=...)` passes both.
            if "ds" in kwargs:
                kwargs["batch"] = kwargs.pop("ds")
            return super().__call__(*args, **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardingStrategy(metaclass=_AcceptsOlderNames):
    """Where the arrays of an experiment live; each field is a sharding tree.

    Attributes:
      batch: The data. `ds` is its older name.
      params: The model's parameters.
      collections: The model's other collections, such as batch statistics.
      opt_state: The state of the optimizer; `None`: it follows from the parameters.
      aux: Losses, metrics and summaries that a step returns.

    Example:
      >>> from kauldron import kd
      >>> strategy = kd.sharding.ShardingStrategy(params=kd.sharding.FSDPSharding())
      >>> strategy.batch == kd.sharding.FIRST_DIM
      True
    """

    batch: ShardingTree = dataclasses.field(
        default_factory=lambda: device_mesh.FIRST_DIM
    )
    params: ShardingTree = dataclasses.field(
        default_factory=lambda: device_mesh.REPLICATED
    )
    collections: ShardingTree = None
    opt_state: ShardingTree = None
    aux: ShardingTree = dataclasses.field(
        default_factory=lambda: device_mesh.REPLICATED
    )

    def __post_init__(self) -> None:
        # Hashable, to be a static argument of jitted functions.
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _SHARDING_TREES:  # subclasses add others
                _check_sharding_tree(f"{type(self).__name__}({field.name}=...)", value)
            object.__setattr__(self, field.name, freeze(value))

    @property
    def state(self) -> TrainState:
        """Sharding tree of the train state."""
        train = importlib.import_module("kauldron.train")  # of a floor above
        return train.TrainState(
            step=device_mesh.REPLICATED,
            params=self.params,
            collections=self.collections,
            opt_state=self.opt_state,
        )

    def set_global_mesh(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context of initialisation, train and eval steps: an empty one.

        Override it for models that expect an ambient mesh (`jax.set_mesh`).
        """
        return contextlib.nullcontext()

    @property
    def ds(self) -> ShardingTree:
        """Older name of `batch`."""
        warnings.warn(
            "`ShardingStrategy.ds` is now called `batch`.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.batch


#
# Large arrays, sharded over all devices
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class FSDPSharding:
    """Rule for a sharding tree: large arrays are cut along one dimension.

    An array is replicated if it is small, or if no dimension is divisible by the number
    of devices. Otherwise its largest divisible dimension is sharded (of equal ones, the
    later).

    Attributes:
      min_size_to_shard_mb: Arrays of up to this many MiB are replicated.
      mesh: Mesh to shard over; the one over all devices by default.
      axis: Axis of that mesh.

    Example:
      >>> import jax.numpy as jnp
      >>> rule = FSDPSharding(min_size_to_shard_mb=0)
      >>> rule({"w": jax.ShapeDtypeStruct((4, 64), jnp.float32)})["w"].spec
      P(None, 'devices')
    """

    min_size_to_shard_mb: float = 4
    mesh: Mesh | None = None
    axis: str = device_mesh.AXIS

    def __call__(self, arrays: Any) -> Any:
        """Return the sharding of each array, tracer or `ShapeDtypeStruct` of a tree."""
        mesh = self.mesh or device_mesh.DEVICES_MESH
        paths_and_arrays, structure = jax.tree_util.tree_flatten_with_path(arrays)
        shardings, too_odd = [], []
        for path, array in paths_and_arrays:
            spec = self._spec(array, num_devices=mesh.shape[self.axis])
            shardings.append(NamedSharding(mesh, spec or PartitionSpec()))
            if spec is None:
                too_odd.append((nbytes(array), path))
        if too_odd:
            _log_once(_replicated_message(too_odd, mesh.shape[self.axis]))
        return jax.tree.unflatten(structure, shardings)

    def _spec(self, array: Any, *, num_devices: int) -> PartitionSpec | None:
        """Return the dimensions to shard; None if a large array has none that fits."""
        if nbytes(array) <= self.min_size_to_shard_mb * 2**20:
            return PartitionSpec()
        shape = np.shape(array)
        divisible = [i for i, size in enumerate(shape) if size % num_devices == 0]
        if not divisible:
            return None
        largest = max(divisible, key=lambda i: (shape[i], i))
        return PartitionSpec(
            *(self.axis if i == largest else None for i in range(len(shape)))
        )


def _replicated_message(too_odd: list[tuple[int, KeyPath]], num_devices: int) -> str:
    total = sum(size for size, _ in too_odd)
    largest = sorted(too_odd, key=lambda item: -item[0])[:3]
    names = ", ".join(
        f"{jax.tree_util.keystr(path) or 'the array'} ({size / 2**20:.4g} MiB)"
        for size, path in largest
    )
    return (
        f"FSDPSharding: {total / 2**20:.4g} MiB in {len(too_odd)} arrays are replicated, "
        f"because no dimension is divisible by {num_devices}. The largest: {names}."
    )


@functools.cache
def _log_once(message: str) -> None:
    logging.getLogger("kauldron").info("%s", message)
