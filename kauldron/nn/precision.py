"""Computing in 16 bits, with parameters and results in 32."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from kauldron.nn.adapters import WrapperModule


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
            return _cast(self.model(*args, **kwargs), self.output_dtype)
        args, kwargs = _cast((args, kwargs), self.compute_dtype)
        call = nn.map_variables(
            lambda model: model(*args, **kwargs),
            "params",
            trans_in_fn=lambda params: _cast(params, self.compute_dtype),
        )
        return _cast(call(self.model), self.output_dtype)


def _cast(tree: Any, dtype: Any) -> Any:
    """Return the tree with its floating-point arrays in another dtype."""

    def cast(leaf: Any) -> Any:
        leaf_dtype = getattr(leaf, "dtype", None)
        if leaf_dtype is None or not jnp.issubdtype(leaf_dtype, jnp.floating):
            return leaf
        return leaf.astype(dtype)

    return jax.tree.map(cast, tree)
