"""`ShardingStrategy`: the shardings of an experiment."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

from kauldron.konfig.immutabledict import freeze
from kauldron.sharding import device_mesh
from kauldron.sharding.tree import ShardingTree

if TYPE_CHECKING:
    from kauldron.train import TrainState


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
            object.__setattr__(self, field.name, freeze(getattr(self, field.name)))

    @property
    def state(self) -> TrainState:
        """Sharding tree of the train state."""
        # The one name that this package takes from above.
        from kauldron.train import TrainState

        return TrainState(
            step=device_mesh.REPLICATED,
            params=self.params,
            collections=self.collections,
            opt_state=self.opt_state,
        )

    def set_global_mesh(self) -> contextlib.AbstractContextManager[Any]:
        """Entered around initialisation, train and eval steps; does nothing.

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
