"""A model without parameters, for tests and placeholders."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from kauldron import kontext


class DummyModel(nn.Module):
    """Predicts one logit, 42, whatever comes in.

    Attributes:
      inputs: Key of the input, if any.
    """

    inputs: kontext.Key | None = None

    @nn.compact
    def __call__(self, inputs: Any = None) -> dict[str, jax.Array]:
        del inputs
        return {"logits": jnp.array([42.0], jnp.float32)}
