"""What an exported model is called with, with sizes left open."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from kauldron import kontext
from kauldron.data import utils as data_utils
from kauldron.train.context import Context


def batch_structs(element_spec: Any, batch_specs: Any) -> Any:
    """A batch of shapes, some of whose sizes are symbols.

    Args:
      element_spec: Specs of a batch.
      batch_specs: Texts as `jax.export.symbolic_shape` reads them, in a tree that is a
        prefix of the batch. Numbers without a shape have no size to leave open.

    Returns:
      The batch as `jax.ShapeDtypeStruct`s; `None` for texts, which no model reads.
    """
    arrays = jax.tree.map(_struct, element_spec)
    texts = jax.tree.broadcast(batch_specs, element_spec)
    shapes = jax.tree.map(
        lambda array, text: text if array is None or array.ndim else "",
        *(arrays, texts),
        is_leaf=lambda node: node is None,
    )
    shapes = jax.tree.map(lambda array, shape: shape, arrays, shapes)
    return jax.export.symbolic_args_specs(arrays, shapes)


def _struct(spec: Any) -> jax.ShapeDtypeStruct | None:
    if spec.dtype == np.dtype(object):
        return None
    return jax.eval_shape(lambda: data_utils.array_spec_to_jnp_empty(spec))


def model_inputs(model: Any, batch: Any) -> dict[str, Any]:
    """The shapes of the arguments of a model, by name.

    Args:
      model: Without keys, its one argument is called `batch`.
      batch: The batch as `jax.ShapeDtypeStruct`s.
    """
    if not kontext.is_key_annotated(model):
        return {"batch": batch}

    def read(step: Any, batch: Any) -> dict[str, Any]:
        _, inputs = data_utils.get_model_inputs(model, Context(step=step, batch=batch))
        return {name: value for name, value in inputs.items() if value is not None}

    return jax.eval_shape(read, jax.ShapeDtypeStruct((), "int32"), batch)


def structs(tree: Any) -> Any:
    """Shapes and dtypes of arrays, without where they are."""
    return jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), tree
    )
