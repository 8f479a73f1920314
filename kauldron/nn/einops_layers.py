"""einops as layers."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

import einops
import flax.core
import flax.linen as nn
import jax

Reduction = Literal["min", "max", "sum", "mean", "prod"]


class Rearrange(nn.Module):
    """`einops.rearrange` as a layer.

    Attributes:
      pattern: Such as `"b h w c -> b (h w) c"`.
      axes_lengths: Sizes of axes that the input does not tell.
    """

    pattern: str
    axes_lengths: Mapping[str, int] = flax.core.FrozenDict()

    def __post_init__(self) -> None:
        self.axes_lengths = flax.core.freeze(dict(self.axes_lengths))
        super().__post_init__()

    @nn.compact
    def __call__(self, tensor: jax.Array) -> jax.Array:
        return _apply(
            self,
            tensor,
            lambda: einops.rearrange(tensor, self.pattern, **self.axes_lengths),
        )


class Reduce(nn.Module):
    """`einops.reduce` as a layer.

    Attributes:
      pattern: Such as `"b h w c -> b c"`.
      reduction: How the axes that disappear are combined.
      axes_lengths: Sizes of axes that the input does not tell.
    """

    pattern: str
    reduction: Reduction
    axes_lengths: Mapping[str, int] = flax.core.FrozenDict()

    def __post_init__(self) -> None:
        known = typing.get_args(Reduction)
        if self.reduction not in known:
            raise ValueError(
                f"Reduce: unknown reduction {self.reduction!r}; known: {', '.join(known)}."
            )
        self.axes_lengths = flax.core.freeze(dict(self.axes_lengths))
        super().__post_init__()

    @nn.compact
    def __call__(self, tensor: jax.Array) -> jax.Array:
        return _apply(
            self,
            tensor,
            lambda: einops.reduce(
                tensor, self.pattern, self.reduction, **self.axes_lengths
            ),
        )


def _apply(module: nn.Module, tensor: Any, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except einops.EinopsError as error:
        error.add_note(
            f"In the layer {'/'.join(module.path) or type(module).__name__}, with an "
            f"input of shape {tensor.shape}."
        )
        raise
