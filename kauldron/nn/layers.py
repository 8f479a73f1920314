"""Layers: dropout that knows its mode, einops, containers."""

from __future__ import annotations

import contextlib
import copy
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import einops
import flax.core
import flax.linen as nn
import jax

from kauldron import kontext
from kauldron.errors import error_prefix
from kauldron.nn.properties import refuse_deterministic, train_property
from kauldron.random.prng_key import unwrap


class Dropout(nn.Dropout):
    """`flax.linen.Dropout`, active in training and the identity in evaluation.

    Attributes:
      rate: Probability of a value to be zeroed.
      broadcast_dims: Dimensions along which values are dropped together.
      deterministic: Not to be set; the mode comes from `is_training_property=`.
      rng_collection: Name of the random stream.
    """

    is_training = train_property()

    def __post_init__(self) -> None:
        refuse_deterministic(self)
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


class Identity(nn.Module):
    """Returns its first argument; its output appears among the intermediates."""

    @nn.compact
    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        return inputs


#
# einops
#


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
        with _naming(self, tensor):
            return einops.rearrange(tensor, self.pattern, **self.axes_lengths)


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
        with _naming(self, tensor):
            return einops.reduce(
                tensor, self.pattern, self.reduction, **self.axes_lengths
            )


@contextlib.contextmanager
def _naming(module: nn.Module, tensor: Any) -> Iterator[None]:
    """Tell in errors of einops which layer raised them."""
    try:
        yield
    except einops.EinopsError as error:
        error.add_note(
            f"In the layer {'/'.join(module.path) or type(module).__name__}, with an "
            f"input of shape {tensor.shape}."
        )
        raise


#
# Layers one after the other
#


class Sequential(nn.Module):
    """Feeds each layer with what the one before returned.

    A tuple is passed on as positional arguments, a mapping as keyword arguments,
    anything else as the single argument. Layers may be plain functions.

    Attributes:
      layers: The layers.
      inputs: Key of the input.
      outputs: Name of the output: the result is then `{outputs: y}`.
    """

    layers: Sequence[Callable[..., Any]] = ()
    inputs: kontext.Key = kontext.REQUIRED
    outputs: str | None = None

    @classmethod
    def from_repeated(
        cls,
        layer: Callable[..., Any],
        repeats: int,
        *,
        shared_weights: bool = False,
        inputs: kontext.Key = kontext.REQUIRED,
        outputs: str | None = None,
        prefix: Sequence[Callable[..., Any]] = (),
        suffix: Sequence[Callable[..., Any]] = (),
    ) -> Self:
        """Return a layer several times.

        Args:
          layer: The layer to repeat.
          repeats: How many times.
          shared_weights: Whether it is the same layer each time.
          inputs: Key of the input.
          outputs: Name of the output.
          prefix: Layers before.
          suffix: Layers after.

        Returns:
          The container.
        """
        repeated = [
            layer if shared_weights else copy.deepcopy(layer) for _ in range(repeats)
        ]
        return cls(layers=(*prefix, *repeated, *suffix), inputs=inputs, outputs=outputs)

    @nn.compact
    def __call__(self, inputs: Any) -> Any:
        if not isinstance(self.layers, Sequence):
            raise TypeError(f"`layers` is a list of layers, not {self.layers!r}.")
        result = inputs
        for index, layer in enumerate(self.layers):
            with error_prefix(lambda: f"layers[{index}] ({_name(layer)}): "):  # noqa: B023
                result = _apply(layer, result)
        return result if self.outputs is None else {self.outputs: result}


def _apply(layer: Callable[..., Any], inputs: Any) -> Any:
    if isinstance(layer, type):
        raise TypeError(f"this is the class itself; call it: {_name(layer)}(...).")
    if not callable(layer):
        raise TypeError(f"a layer is a module or a function, not {layer!r}.")
    if isinstance(inputs, tuple):
        return layer(*inputs)
    if isinstance(inputs, Mapping):
        return layer(**inputs)
    return layer(inputs)


def _name(layer: Any) -> str:
    return getattr(layer, "__name__", type(layer).__name__)
