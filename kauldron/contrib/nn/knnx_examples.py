"""Small NNX models, to start from and to test with."""

from __future__ import annotations

import dataclasses

import jax
from flax import nnx

from kauldron import kontext
from kauldron.contrib.nn import knnx


class MyNnxModule(nnx.Module):
    """An ordinary NNX module: a layer, dropout, and the positive part.

    Args:
      input_dim: Size of the input.
      hdim: Size of the output.
      rngs: Streams `params` and `dropout`, or `default`.
    """

    def __init__(self, input_dim: int = 3, hdim: int = 10, *, rngs: nnx.Rngs):
        self.lin = nnx.Linear(input_dim, hdim, rngs=rngs)
        self.dropout = nnx.Dropout(rate=0.5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return nnx.relu(self.dropout(self.lin(x)))


@dataclasses.dataclass(kw_only=True)
class SimpleKdNnxModule(knnx.KdNnxModule):
    """A classifier for the trainer, made of ordinary NNX modules.

    Attributes:
      input_dim: Size of a flat image.
      hdim: Size of the hidden layer.
      output_dim: Number of classes.
      image: Key of the flat images.
    """

    input_dim: int = 3
    hdim: int = 128
    output_dim: int = 1000
    image: kontext.Key = "batch.image"

    def setup(self, rngs: nnx.Rngs | None = None) -> None:
        """Make the layers."""
        rngs = nnx.Rngs(0) if rngs is None else rngs
        self.backbone = MyNnxModule(self.input_dim, self.hdim, rngs=rngs)
        self.proj = nnx.Linear(self.hdim, self.output_dim, rngs=rngs)

    def __call__(self, image: jax.Array) -> jax.Array:
        return self.proj(self.backbone(image))
