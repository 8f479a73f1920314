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

    Raises:
      ValueError: A text cannot be read, or is for another number of dimensions.
    """
    specs, structure = jax.tree.flatten(element_spec)
    texts = jax.tree.leaves(jax.tree.broadcast(batch_specs, element_spec))
    arrays = [_struct(spec) for spec in specs]
    shapes = [
        None if array is None else (text if array.ndim else "")
        for array, text in zip(arrays, texts)
    ]
    try:
        symbolic = jax.export.symbolic_args_specs(arrays, shapes)
    except (ValueError, IndexError) as error:  # whose message names no array
        known = kontext.flatten_with_path(element_spec, prefix="batch")
        sizes = ", ".join(f"{path}: {spec.shape}" for path, spec in known.items())
        raise ValueError(
            f"batch_specs={batch_specs!r} does not fit the batch ({sizes}): {error}"
        ) from error
    return jax.tree.unflatten(structure, symbolic)


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
