"""Whole models: an autoencoder, and one without parameters for tests."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from kauldron import kontext
from kauldron.ktyping import Float, typechecked


class FlatAutoencoder(nn.Module):
    """Flattens each example, encodes, decodes, and gives it its shape back.

    With `inputs="batch.image"` the result is `{"image": y}`, so that losses compare
    `"preds.image"` with `"batch.image"`.

    Attributes:
      encoder: From flat inputs to a code.
      decoder: From the code to as many numbers as the input had.
      inputs: Key of the input.
    """

    encoder: nn.Module
    decoder: nn.Module
    inputs: kontext.Key = kontext.REQUIRED

    @nn.compact
    @typechecked
    def __call__(self, inputs: Float["b *inner"]) -> dict[str, Any]:
        size = math.prod(inputs.shape[1:])
        flat = self.decoder(self.encoder(inputs.reshape(inputs.shape[0], size)))
        if flat.shape[-1] != size:
            raise ValueError(
                f"FlatAutoencoder: the decoder returns {flat.shape[-1]} features; inputs "
                f"of shape {inputs.shape} need {size}."
            )
        outputs: Any = flat.reshape(inputs.shape)
        for name in reversed(self._output_names()):
            outputs = {name: outputs}
        return outputs

    def _output_names(self) -> list[str]:
        if self.inputs == kontext.REQUIRED:
            return ["inputs"]
        return str(self.inputs).removeprefix("batch.").split(".")


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
