"""NNX models that the tests and their configs name."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from flax import nnx

from kauldron import kontext
from kauldron.contrib import knnx


class Block(nnx.Module):
    """Has parameters, batch statistics, a random stream, and stores a value."""

    def __init__(self, size, rngs):
        self.lin = nnx.Linear(4, size, rngs=rngs)
        self.norm = nnx.BatchNorm(size, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        h = self.lin(x)
        self.sow(nnx.Intermediate, "hidden", h)
        return self.dropout(self.norm(h))


BLOCK_INIT = functools.partial(Block, 8)


def sums():
    """Vectors and the sums of their entries."""
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    return {"x": x, "y": x.sum(axis=1, keepdims=True)}


@dataclasses.dataclass(kw_only=True)
class Net(knnx.KdNnxModule):
    """A block, made by a factory, and a head."""

    block_init: Callable[..., nnx.Module] = BLOCK_INIT
    x: kontext.Key = "batch.x"

    def setup(self, rngs):
        self.block = self.block_init(rngs=rngs)
        self.blocks = nnx.List([nnx.Linear(8, 8, rngs=rngs) for _ in range(2)])
        self.head = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        h = self.block(x)
        for block in self.blocks:
            h = nnx.relu(block(h))
        return {"y": self.head(h)}

    def embed(self, x):
        return self.block.lin(x)


@dataclasses.dataclass(kw_only=True)
class StaticNet(Net):
    """Promises that its structure stays."""

    __dynamic_module__ = False
