"""What the trainer and inspection tools ask about data (`kd.data.utils`)."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.batch_mask import without_mask
from kauldron.data.engine import trees
from kauldron.data.specs import ArraySpec
from kauldron.data.specs import spec_from_json as spec_from_json
from kauldron.data.specs import spec_to_json as spec_to_json
from kauldron.sharding import device_mesh
from kauldron.sharding.tree import flatten_with_shardings, local_to_global_shape


def array_spec_to_jnp_empty(spec: Any, batch_dim: int = 17) -> jax.Array:
    """Return an uninitialised array of a spec.

    Args:
      spec: Anything with a shape and a dtype. 64-bit numbers become 32-bit.
      batch_dim: Stands for an unknown first dimension; other unknown ones become 1.
    """
    shape = [1 if size is None else size for size in spec.shape]
    if spec.shape and spec.shape[0] is None:
        shape[0] = batch_dim
    return jnp.empty(shape, _narrowed(spec.dtype))


def get_global_elem_spec(per_host_spec: Any, sharding: Any = None) -> Any:
    """Return the spec of the whole batch, of which each process has its part.

    Args:
      per_host_spec: Spec of a batch of this process.
      sharding: Of the batch: where the first dimension is sharded it is multiplied by
        the number of processes. By default `kd.sharding.FIRST_DIM`.
    """
    default = device_mesh.FIRST_DIM
    leaves = flatten_with_shardings(
        per_host_spec, default if sharding is None else sharding
    )
    specs = [_global_spec(leaf.value, leaf.sharding or default) for leaf in leaves]
    return jax.tree.unflatten(jax.tree.structure(per_host_spec), specs)


def mock_batch_from_elem_spec(spec: Any, sharding: Any = None) -> Any:
    """Return a batch of uninitialised arrays on the devices.

    Args:
      spec: Spec of the whole batch, over all processes. Texts cannot be on a device:
        their specs are handed on.
      sharding: Of the batch; by default `kd.sharding.FIRST_DIM`.
    """
    default = device_mesh.FIRST_DIM
    leaves = flatten_with_shardings(spec, default if sharding is None else sharding)
    placed = {
        number: leaf for number, leaf in enumerate(leaves) if _is_numeric(leaf.value)
    }

    def make() -> dict[int, jax.Array]:
        return {n: array_spec_to_jnp_empty(leaf.value) for n, leaf in placed.items()}

    shardings = {n: leaf.sharding or default for n, leaf in placed.items()}
    arrays = jax.jit(make, out_shardings=shardings)()
    values = [arrays.get(n, leaf.value) for n, leaf in enumerate(leaves)]
    return jax.tree.unflatten(jax.tree.structure(spec), values)


def _global_spec(spec: Any, sharding: Any) -> Any:
    if not trees.has_shape_and_dtype(spec):
        return spec
    return ArraySpec(local_to_global_shape(spec.shape, sharding=sharding), spec.dtype)


def _is_numeric(spec: Any) -> bool:
    return trees.has_shape_and_dtype(spec) and spec.dtype != np.dtype(object)


def _narrowed(dtype: Any) -> np.dtype:
    return np.dtype(
        {"int64": "int32", "uint64": "uint32", "float64": "float32"}.get(
            str(dtype), dtype
        )
    )


def get_model_inputs(
    model: Any, context: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the model's call.

    Args:
      model: With keys (`kontext.Key` fields), it gets what they name in the context;
        without, the whole batch as its only argument (less the mask of its filler).
      context: Has at least a `batch`.

    Returns:
      Positional arguments and keyword arguments.
    """
    if not kontext.is_key_annotated(model):
        return (without_mask(context.batch),), {}
    call = model.__call__ if callable(model) else None
    return (), kontext.resolve_from_keyed_obj(context, model, func=call)


def get_model_inputs_from_batch(
    model: Any, batch: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the model's call, given nothing but a batch."""
    return get_model_inputs(model, _BatchContext(batch=batch))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BatchContext:
    """The context before the first step."""

    batch: Any
    step: int = 0
