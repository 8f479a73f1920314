"""Layers one after the other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import flax.linen as nn

from kauldron import kontext
from kauldron.errors import error_prefix


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
        """A layer several times.

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
