"""What a run consists of, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext

_QUICK_TO_COPY_BYTES = 16 * 2**20  # compiling a program takes longer


def describe_config(config: Any) -> str:
    """Return the config as it would be written in Python."""
    return f"```python\n{config!r}\n```"


def describe_params(params: Any) -> tuple[str, int]:
    """Return a table of the parameters, and their number."""
    flat = kontext.flatten_with_path(params)
    statistics = _statistics(flat)
    rows = [
        (
            path,
            _shape(value),
            str(value.dtype),
            f"{math.prod(value.shape):,}",
            f"{statistics[path][0]:.3g}",
            f"{statistics[path][1]:.3g}",
        )
        for path, value in flat.items()
    ]
    count = sum(math.prod(value.shape) for value in flat.values())
    table = _table(("path", "shape", "dtype", "size", "mean", "std"), rows)
    return f"{table}\n\nTotal: {count:,}", count


def describe_specs(tree: Any) -> str:
    """Return a table of the paths, shapes and dtypes of a tree."""
    flat = kontext.flatten_with_path(tree)
    rows = [
        (path, _shape(leaf), str(getattr(leaf, "dtype", type(leaf).__name__)))
        for path, leaf in flat.items()
    ]
    return _table(("path", "shape", "dtype"), rows)


def describe_context(context: Any) -> str:
    """Return a table of what keys can name; gradients look like the parameters."""
    note = "Same structure as `params`."
    parts = [describe_specs(context.replace(grads=None, updates=None))]
    parts += [
        f"`{name}`: {note}"
        for name in ("grads", "updates")
        if getattr(context, name) is not None
    ]
    return "\n\n".join(parts)


def _statistics(flat: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each array, computed where that is quickest."""
    is_small = sum(value.nbytes for value in flat.values()) <= _QUICK_TO_COPY_BYTES
    if is_small and all(_is_here(value) for value in flat.values()):
        flat = jax.device_get(flat)
        return {path: _mean_and_std(value, np) for path, value in flat.items()}
    return jax.device_get(_all_mean_and_std(flat))


@jax.jit
def _all_mean_and_std(flat: Mapping[str, jax.Array]) -> dict[str, tuple[Any, Any]]:
    return {path: _mean_and_std(value, jnp) for path, value in flat.items()}


def _mean_and_std(value: Any, numpy: Any) -> tuple[Any, Any]:
    value = value.astype(np.float32)
    return numpy.mean(value), numpy.std(value)


def _is_here(value: Any) -> bool:
    return getattr(value, "is_fully_addressable", True)


def _shape(leaf: Any) -> str:
    return "(" + ", ".join(map(str, getattr(leaf, "shape", ()))) + ")"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
