"""Wrappers around a model: for foreign ones, and for computing in 16 bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.core
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core.scope import LazyRng

from kauldron import kontext
from kauldron.batch_mask import without_mask
from kauldron.errors import a_type
from kauldron.nn.properties import train_property

_ARGS = "__args__"


class WrapperModule(nn.Module):
    """Base of wrappers that leave no trace in the parameters, collections and keys.

    Override `__call__`, and call `self.model` in it.

    Attributes:
      model: The wrapped model.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> class Doubled(WrapperModule):
      ...     def __call__(self, x):
      ...         return 2 * self.model(x)
      >>> variables = Doubled(nn.Dense(3)).init(jax.random.key(0), jnp.ones((1, 2)))
      >>> list(variables["params"])
      ['kernel', 'bias']
    """

    model: nn.Module

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise TypeError(
                f"{type(self).__name__}(model=...) takes a linen module, not "
                f"{a_type(self.model)}. For NNX models there are "
                "`kd.contrib.knnx.MixedPrecision` and `kd.contrib.nn.linen_from_nnx`."
            )
        super().__post_init__()
        if self.scope is not None:
            self._share_scope()

    def _share_scope(self) -> None:
        if self.model.scope is None or self.model.scope is self.scope:
            return
        # The name belongs to the wrapped model again, which may be a wrapper too.
        self.scope.reservations.pop("model", None)
        nn.share_scope(self, self.model)
        _correct_paths(self.model)
        if isinstance(self.model, WrapperModule):
            self.model._share_scope()

    def __kontext_keys__(self) -> dict[str, Any]:
        if kontext.is_key_annotated(self.model):
            return kontext.get_keypaths(self.model)
        return {_ARGS: "batch"}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        args, kwargs = self.call_arguments(args, kwargs)
        return self.model(*args, **kwargs)

    def call_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments for the wrapped model.

        Args:
          args: Positional arguments of the call.
          kwargs: Keyword arguments. Under the name `__args__` there is the whole batch,
            for a model without keys.

        Returns:
          Positional arguments and keyword arguments.
        """
        if set(kwargs) == {_ARGS} and not kontext.is_key_annotated(self.model):
            return (*args, without_mask(kwargs[_ARGS])), {}
        return args, kwargs


def _correct_paths(module: nn.Module) -> None:
    """Tell sub-modules where they are, which sharing a scope does not.

    Their path goes into their random keys too: a wrapper does not change the initial
    values of a model.
    """
    scope = module.scope
    for field in dataclasses.fields(module):
        if field.name in ("parent", "name"):
            continue
        for child in jax.tree.leaves(getattr(module, field.name), is_leaf=_is_module):
            if _is_module(child) and child.scope and child.scope.parent is scope:
                name = child.scope.name
                child.scope.path = (*scope.path, name)
                child.scope.debug_path = (*scope.debug_path, name)
                child.scope.rngs = {
                    stream: LazyRng.create(rng, name)
                    for stream, rng in scope.rngs.items()
                }
                _correct_paths(child)


def _is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


class ExternalModule(WrapperModule):
    """A flax module that has neither keys nor a train property, as a model.

    Attributes:
      model: The module.
      keys: From the names of its arguments to paths in the context; or a path, or
        several, for its positional arguments.
      train_kwarg_name: Name of a bool argument that tells whether it is called in
        training; `"~deterministic"` if it is true in evaluation.

    Example:
      >>> from kauldron import kd
      >>> model = kd.nn.ExternalModule(model=nn.Dense(3), keys="batch.x")
    """

    keys: str | Mapping[str, str] | tuple[str, ...] = kontext.REQUIRED
    train_kwarg_name: str | None = None

    is_training = train_property()

    def __post_init__(self) -> None:
        if isinstance(self.keys, str) and self.keys == kontext.REQUIRED:
            raise TypeError(
                f"{type(self).__name__} needs `keys`: a path such as 'batch.image', or "
                "a dict from the names of the model's arguments to paths."
            )
        if isinstance(self.keys, Mapping):
            self.keys = flax.core.freeze(dict(self.keys))
        elif not isinstance(self.keys, str):
            self.keys = tuple(self.keys)
        super().__post_init__()

    def __kontext_keys__(self) -> dict[str, Any]:
        if isinstance(self.keys, Mapping):
            return dict(self.keys)
        return {_ARGS: self.keys}

    def call_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments for the wrapped model, the mode among them."""
        kwargs = dict(kwargs)
        if _ARGS in kwargs:
            given = kwargs.pop(_ARGS)
            args = (*args, *(given if isinstance(self.keys, tuple) else (given,)))
        if self.train_kwarg_name is not None:
            name = self.train_kwarg_name.removeprefix("~")
            is_inverted = name != self.train_kwarg_name
            kwargs[name] = self.is_training != is_inverted
        return args, kwargs


class MixedPrecision(WrapperModule):
    """Computes a model in 16 bits; its parameters, collections and outputs have 32.

    Works for any flax model, which keeps its parameters and keys. Floating-point inputs
    and parameters are rounded when the model is called, predictions are converted back:
    losses and metrics, gradients and the optimizer have 32 bits. Layers that ask for a
    dtype of their own (`nn.Dense(dtype=jnp.float32)`) compute in it.

    bfloat16 has the range of float32, so losses need no scaling.

    Attributes:
      model: The model.
      compute_dtype: What the model computes in.
      output_dtype: What its outputs are converted to.

    Example:
      >>> model = MixedPrecision(nn.Dense(3))
      >>> y, variables = model.init_with_output(jax.random.key(0), jnp.ones((1, 2)))
      >>> str(y.dtype), str(variables["params"]["kernel"].dtype)
      ('float32', 'float32')
    """

    compute_dtype: Any = jnp.bfloat16
    output_dtype: Any = jnp.float32

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        args, kwargs = self.call_arguments(args, kwargs)
        if self.is_initializing():  # parameters may take the dtype of the inputs
            return cast_floats(self.model(*args, **kwargs), self.output_dtype)
        args, kwargs = cast_floats((args, kwargs), self.compute_dtype)
        call = nn.map_variables(
            lambda model: model(*args, **kwargs),
            "params",
            trans_in_fn=lambda params: cast_floats(params, self.compute_dtype),
        )
        return cast_floats(call(self.model), self.output_dtype)


def cast_floats(tree: Any, dtype: Any) -> Any:
    """Return the tree with its floating-point arrays in another dtype."""

    def cast(leaf: Any) -> Any:
        leaf_dtype = getattr(leaf, "dtype", None)
        if leaf_dtype is None or not jnp.issubdtype(leaf_dtype, jnp.floating):
            return leaf
        return leaf.astype(dtype)

    return jax.tree.map(cast, tree)
