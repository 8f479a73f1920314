"""Trees of arrays on disk: the place that knows how orbax stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from kauldron.ckpts import structure
from kauldron.ckpts.structure import LeafPath


def tree_handler() -> ocp.PyTreeCheckpointHandler:
    """Return a handler that saves trees without compiling anything.

    By default, orbax lets every device that has a copy of an array save a slice of it,
    and slicing is compiled for each shape and device: minutes for a large model on
    eight devices. Here the first copy is saved whole.
    """
    handlers = ocp.type_handlers
    arrays = handlers.ArrayHandler(
        use_replica_parallel=False,
        # Notes the kinds of random keys. This is the public way to it.
        array_metadata_store=ocp.v1.options.ArrayOptions.Saving().array_metadata_store,
    )
    registry = handlers.create_type_handler_registry(
        (int, handlers.ScalarHandler()),
        (float, handlers.ScalarHandler()),
        (np.ndarray, handlers.NumpyHandler()),
        (jax.Array, arrays),
    )
    return ocp.PyTreeCheckpointHandler(type_handler_registry=registry)


def as_saved(tree: Any) -> Any:
    """Return the tree with arrays in the place of what can become one.

    Raises:
      ValueError: A leaf is neither an array nor a number; the message has its path.
    """
    leaves = structure.flatten(tree)
    arrays = {path: _as_saved(path, leaf) for path, leaf in leaves.items()}
    return structure.with_leaves(tree, arrays)


def _as_saved(path: LeafPath, leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | jax.Array):
        return leaf
    if hasattr(leaf, "__array__"):
        return np.asarray(leaf)
    if isinstance(leaf, int | float):
        return leaf
    raise ValueError(
        f"{structure.show(path)} has the type {type(leaf).__name__}, and checkpoints "
        "hold only arrays and numbers: take it out of the state."
    )


def stored_tree(folder: epath.Path) -> Any:
    """Shapes and dtypes of a stored tree, as nested dicts and lists; no data is read."""
    handler = ocp.PyTreeCheckpointHandler()
    try:
        return handler.metadata(folder).tree
    finally:
        handler.close()


def read_leaves(
    folder: epath.Path, tree: Any, wanted: Mapping[LeafPath, Any]
) -> dict[LeafPath, Any]:
    """Read some leaves of a stored tree, in one pass.

    Args:
      folder: Folder of the item.
      tree: `stored_tree(folder)`.
      wanted: From path in the tree to an array (or spec): where the leaf is to be, and
        of which dtype.

    Returns:
      From path to the leaf.
    """
    if not wanted:
        return {}
    # Orbax wants the whole structure, with placeholders for what is not to be read.
    _, treedef = jax.tree_util.tree_flatten(tree)
    request = jax.tree_util.tree_unflatten(
        treedef,
        [
            _as_request(wanted[path]) if path in wanted else ocp.PLACEHOLDER
            for path in structure.flatten(tree)
        ],
    )
    args = ocp.args.PyTreeRestore(
        item=request, restore_args=ocp.checkpoint_utils.construct_restore_args(request)
    )
    handler = ocp.PyTreeCheckpointHandler()
    try:
        leaves = structure.flatten(handler.restore(folder, args=args))
    finally:
        handler.close()
    return {path: leaves[path] for path in wanted}


def as_requests(tree: Any) -> Any:
    """The tree with specs in the place of arrays: all that reading needs to know."""
    return jax.tree.map(_as_request, tree)


def anywhere(stored: Any) -> Any:
    """A request for a leaf as it is stored: numbers, or arrays on the first device."""
    if isinstance(stored, ocp.metadata.ScalarMetadata):
        return np.zeros((), stored.dtype).item()
    return jax.ShapeDtypeStruct(stored.shape, stored.dtype)


def _as_request(leaf: Any) -> Any:
    if isinstance(leaf, np.generic):
        return np.asarray(leaf)
    if isinstance(leaf, np.ndarray) or not hasattr(leaf, "dtype"):
        return leaf
    return jax.ShapeDtypeStruct(
        structure.stored_shape(leaf),
        np.uint32 if structure.is_random_key(leaf) else leaf.dtype,
        sharding=getattr(leaf, "sharding", None) or _first_device(),
    )


def _first_device() -> jax.sharding.Sharding:
    return jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
