"""Gradients of a large batch, computed one part of it after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def scan_parts(
    function: Callable[[Any, Any, Any], tuple[Any, Any, Any]],
    carry: Any,
    batch: Any,
    num_parts: int,
) -> tuple[Any, Any, Any]:
    """Apply a function to parts of a batch, and put together what it returns.

    Records are dealt out one by one, so that each part lies on all devices that the
    batch lies on.

    Args:
      function: From what is carried on, the number of the part and the part, to the
        next carry, what to average over the parts, and what to put together.
      carry: The first carry.
      batch: Arrays whose first axis is that of the records.
      num_parts: How many parts.

    Returns:
      The last carry; the averages; and the rest as if it came from the whole batch.
      Arrays that do not depend on the size of the batch are averaged there too, or, if
      they are not floating-point numbers, those of the last part.
    """
    parts = split_batch(batch, num_parts)
    _, averages, whole = jax.eval_shape(function, carry, 0, batch)
    sums = jax.tree.map(lambda spec: jnp.zeros(spec.shape, _sum_dtype(spec)), averages)

    def step(state: Any, part: Any) -> tuple[Any, Any]:
        carry, sums = state
        carry, values, rest = function(carry, *part)
        return (carry, jax.tree.map(lambda s, v: s + v, sums, values)), rest

    numbers = jnp.arange(num_parts)
    (carry, sums), rest = jax.lax.scan(step, (carry, sums), (numbers, parts))
    averages = jax.tree.map(
        lambda total, spec: (total / num_parts).astype(spec.dtype), sums, averages
    )
    return carry, averages, jax.tree.map(_join, rest, whole)


def _sum_dtype(spec: Any) -> Any:
    return jnp.promote_types(spec.dtype, jnp.float32)


def split_batch(batch: Any, num_parts: int) -> Any:
    """Return the batch with an axis of parts in front: part `i` is `batch[i::n]`."""

    def split(path: Any, array: Any) -> Any:
        if not array.ndim or array.shape[0] % num_parts:
            raise ValueError(
                f"The batch cannot be divided into num_microbatches={num_parts} equal "
                f"parts: {_name(path)!r} has shape {array.shape}."
            )
        rows = array.reshape(-1, num_parts, *array.shape[1:])
        return jnp.moveaxis(rows, 1, 0)

    return jax.tree_util.tree_map_with_path(split, batch)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _join(parts: jax.Array, whole: jax.ShapeDtypeStruct) -> jax.Array:
    """Return what `parts[i]` for `batch[i::n]` are for the whole batch."""
    part_shape = parts.shape[1:]
    axes = [a for a, size in enumerate(whole.shape) if size != part_shape[a]]
    if not axes:
        is_float = jnp.issubdtype(parts.dtype, jnp.inexact)
        return parts.mean(axis=0, dtype=parts.dtype) if is_float else parts[-1]
    return jnp.moveaxis(parts, 0, axes[0] + 1).reshape(whole.shape)
