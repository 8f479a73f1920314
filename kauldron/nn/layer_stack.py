"""Many equal layers: compiled once instead of one by one, or with less memory.

`ScannedLayers` keeps the parameters of all layers in one array each, with the layer as
first axis. `stack_layers` and `unstack_layers` convert between that and one sub-tree for
each layer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from kauldron.errors import did_you_mean
from kauldron.nn.adapters import WrapperModule


class Remat(WrapperModule):
    """Computes a module again in the backward pass instead of storing what it computed.

    The parameters are those of the module.

    Attributes:
      model: The module.
      policy: Name of one of `jax.checkpoint_policies`, which says what to store all the
        same: `"dots_saveable"`, for example. By default nothing.
    """

    policy: str | None = None

    def __post_init__(self) -> None:
        _checkpoint_policy(self.policy)
        super().__post_init__()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        args, kwargs = self.call_arguments(args, kwargs)
        call = nn.remat(
            lambda model: model(*args, **kwargs), policy=_checkpoint_policy(self.policy)
        )
        return call(self.model)


class ScannedLayers(WrapperModule):
    """Layers one after the other that are alike but for their parameters.

    The layer is traced and compiled once, whatever their number. Parameters,
    collections and intermediates are those of the layer with one more axis in front.

    Attributes:
      model: The layer: from tokens to tokens of the same shape and dtype.
      num_layers: How many.
      remat: Whether to compute each layer again in the backward pass; or the policy of
        `Remat`.

    Example:
      >>> layers = ScannedLayers(nn.Dense(8), num_layers=12)
      >>> variables = jax.eval_shape(layers.init, jax.random.key(0), jnp.ones((1, 8)))
      >>> variables["params"]["kernel"].shape
      (12, 8, 8)
    """

    num_layers: int = 1
    remat: bool | str = False

    def __post_init__(self) -> None:
        _checkpoint_policy(remat_policy(self.remat))
        super().__post_init__()

    def __call__(self, tokens: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layers; each gets the same further arguments."""

        def call(model: nn.Module, tokens: Any) -> tuple[Any, None]:
            def layer(model: Any) -> Any:
                return model(tokens, *args, **kwargs)

            if self.remat:
                policy = _checkpoint_policy(remat_policy(self.remat))
                layer = nn.remat(layer, policy=policy, prevent_cse=False)
            return layer(model), None

        scanned = nn.scan(
            call,
            variable_axes={True: 0},
            split_rngs={True: True},
            length=self.num_layers,
        )
        return scanned(self.model, tokens)[0]


def remat_policy(remat: bool | str) -> str | None:
    """Return the name of the policy in a `remat` argument."""
    return remat if isinstance(remat, str) else None


def _checkpoint_policy(name: str | None) -> Callable[..., Any] | None:
    if name is None:
        return None
    known = [n for n in dir(jax.checkpoint_policies) if not n.startswith("_")]
    if name not in known:
        raise ValueError(
            f"Unknown remat policy {name!r}.{did_you_mean(name, known)} Known: "
            f"{', '.join(known)}."
        )
    return getattr(jax.checkpoint_policies, name)


#
# From one layout of the parameters to the other
#


def stack_layers(tree: Any, name: str = "layers") -> Any:
    """Return a tree with `layers_0`, `layers_1`, ... stacked into `layers`.

    Args:
      tree: Parameters, or a whole train state: moments of an optimizer are converted
        too.
      name: What the layers are called.

    Returns:
      The tree for a model with `ScannedLayers`.

    Example:
      >>> params = {"layers_0": {"bias": jnp.zeros(3)}, "layers_1": {"bias": jnp.ones(3)}}
      >>> stack_layers(params)["layers"]["bias"].shape
      (2, 3)
    """
    pattern = re.compile(rf"{re.escape(name)}_(\d+)")

    def convert(node: Mapping[str, Any]) -> dict[str, Any]:
        numbers = [int(m[1]) for key in node if (m := pattern.fullmatch(key))]
        layers = [node.get(f"{name}_{i}") for i in range(len(numbers))]
        if not layers or None in layers or not _are_alike(layers):
            return dict(node)
        others = {key: v for key, v in node.items() if not pattern.fullmatch(key)}
        return others | {name: jax.tree.map(_stack, *layers)}

    return _map_mappings(convert, tree)


def unstack_layers(tree: Any, name: str = "layers") -> Any:
    """Return a tree with `layers` taken apart into `layers_0`, `layers_1`, ...

    The inverse of `stack_layers`.

    Args:
      tree: Parameters of a model with `ScannedLayers`, or a whole train state.
      name: What the layers are called.

    Returns:
      The tree for a model with separate layers.

    Example:
      >>> list(unstack_layers({"layers": {"bias": jnp.zeros((2, 3))}}))
      ['layers_0', 'layers_1']
    """

    def convert(node: Mapping[str, Any]) -> dict[str, Any]:
        stacked = node.get(name)
        lengths = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(stacked)}
        if not isinstance(stacked, Mapping) or len(lengths) != 1 or () in lengths:
            return dict(node)
        [[length]] = lengths
        others = {key: value for key, value in node.items() if key != name}
        return others | {
            f"{name}_{i}": jax.tree.map(lambda leaf, i=i: _item(leaf, i), stacked)
            for i in range(length)
        }

    return _map_mappings(convert, tree)


def _map_mappings(convert: Callable[[Any], Any], tree: Any) -> Any:
    """Return the tree with all its mappings converted, the inner ones first."""

    def walk(node: Any) -> Any:
        if not isinstance(node, Mapping):
            return node
        inner = {key: _map_mappings(convert, value) for key, value in node.items()}
        return convert(inner)

    return jax.tree.map(walk, tree, is_leaf=lambda node: isinstance(node, Mapping))


def _are_alike(layers: list[Any]) -> bool:
    def spec(layer: Any) -> Any:
        shapes = [(jnp.shape(leaf), leaf.dtype) for leaf in jax.tree.leaves(layer)]
        return jax.tree.structure(layer), shapes

    return all(spec(layer) == spec(layers[0]) for layer in layers)


def _stack(*leaves: Any) -> Any:
    if isinstance(leaves[0], jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((len(leaves), *leaves[0].shape), leaves[0].dtype)
    is_on_host = all(isinstance(leaf, np.ndarray) for leaf in leaves)
    return np.stack(leaves) if is_on_host else jnp.stack(leaves)


def _item(leaf: Any, index: int) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
    return leaf[index]
