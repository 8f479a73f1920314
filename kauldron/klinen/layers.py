"""Layers of flax as klinen modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import flax.linen as nn
import jax

from kauldron.klinen.converting import convert
from kauldron.klinen.module import Module
from kauldron.klinen.training_mode import current_mode

if TYPE_CHECKING:

    class Dense(nn.Dense, Module): ...

    class Sequential(nn.Sequential, Module): ...

    class _Dropout(nn.Dropout, Module): ...

else:
    Dense = convert(nn.Dense)
    Sequential = convert(nn.Sequential)
    _Dropout = convert(nn.Dropout)


class Dropout(_Dropout):
    """`flax.linen.Dropout` that is active exactly in training mode.

    Attributes:
      rate: Probability of a value to be zeroed.
      broadcast_dims: Dimensions along which values share their fate.
      deterministic: Not to be set; the mode decides.
      rng_collection: Name of the random stream.

    Example:
      >>> import jax.numpy as jnp
      >>> dropout = Dropout(0.5).init_bind(0, jnp.ones(4))
      >>> dropout.eval()(jnp.ones(4))
      Array([1., 1., 1., 1.], dtype=float32)
    """

    def __post_init__(self) -> None:
        if self.deterministic is not None:
            raise ValueError(
                "knn.Dropout(deterministic=...) is not supported: it drops values "
                "exactly when the model is in training. Use `model.eval()` and "
                "`model.train()`."
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Zero a random part of the inputs and scale up the rest.

        Args:
          inputs: Any array.

        Returns:
          An array like `inputs`.
        """
        return super().__call__(inputs, deterministic=not current_mode(self))
