"""One optimizer for each loss."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import optax


class MultiGradientTransformation(optax.GradientTransformationExtraArgs):
    """What `multi_optimizer` gives.

    Attributes:
      loss_to_optimizer: The optimizers by the name of their loss.
    """

    loss_to_optimizer: Mapping[str, optax.GradientTransformation]


def multi_optimizer(
    **loss_to_optimizer: optax.GradientTransformation,
) -> MultiGradientTransformation:
    """An optimizer of its own for each loss, for example in a GAN.

    To be used with `trainstep=kd.contrib.train.MultiTrainStep()`, which computes the
    gradients of each loss.

    Args:
      **loss_to_optimizer: Optimizers by the name of a loss. Usually each is restricted
        to some parameters by `kd.optim.partial_update`.

    Returns:
      A transformation whose state is a dict from the names to the optimizers' states.

    Example:
      >>> from kauldron import kd
      >>> optimizer = multi_optimizer(
      ...     discriminator=kd.optim.partial_update(
      ...         optimizer=optax.adam(1e-4), mask=kd.optim.select("discriminator")
      ...     ),
      ...     generator=kd.optim.partial_update(
      ...         optimizer=optax.adam(1e-4), mask=kd.optim.select("generator")
      ...     ),
      ... )
      >>> list(optimizer.init({"discriminator": 1.0, "generator": 1.0}))
      ['discriminator', 'generator']
    """
    if not loss_to_optimizer:
        raise ValueError(
            "multi_optimizer() needs at least one optimizer: "
            "`multi_optimizer(loss_name=optax.adam(1e-3))`."
        )

    def init(params: Any) -> dict[str, optax.OptState]:
        return {name: tx.init(params) for name, tx in loss_to_optimizer.items()}

    transform = MultiGradientTransformation(init, _refuse_update)
    transform.loss_to_optimizer = MappingProxyType(loss_to_optimizer)
    return transform


def _refuse_update(*args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "The optimizer is a `multi_optimizer`, which needs the gradients of each loss: "
        "use it with `cfg.trainstep = kd.contrib.train.MultiTrainStep()`."
    )
