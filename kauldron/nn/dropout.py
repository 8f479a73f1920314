"""Dropout that follows the training mode."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax

from kauldron.nn.training_mode import train_property
from kauldron.random.prng_key import unwrap


class Dropout(nn.Dropout):
    """`flax.linen.Dropout`, active in training and the identity in evaluation.

    Attributes:
      rate: Probability of a value to be zeroed.
      broadcast_dims: Dimensions along which values share their fate.
      deterministic: Not to be set; the mode comes from `is_training_property=`.
      rng_collection: Name of the random stream.
    """

    is_training = train_property()

    def __post_init__(self) -> None:
        if self.deterministic is not None:
            raise ValueError(
                f"{type(self).__name__}(deterministic=...) is not supported: dropout "
                "follows the train property. Give the mode to the outermost call "
                "(`model.apply(..., is_training_property=False)`), or call this module "
                "inside `with kd.nn.set_train_property(False):`."
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, inputs: jax.Array, *, rng: Any = None) -> jax.Array:
        """Zero a random part of the inputs and scale up the rest.

        Args:
          inputs: Any array.
          rng: Key to use instead of the stream `rng_collection`: a raw or typed JAX key
            or a `kd.random.PRNGKey`.

        Returns:
          An array like `inputs`.
        """
        return super().__call__(
            inputs, deterministic=not self.is_training, rng=unwrap(rng)
        )
