"""The text of a bound model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from kauldron.klinen.view import View


def describe(view: View) -> str:
    """The definition, and a line about parameters, mode and random keys."""
    mode = "train" if view.root.training else "eval"
    keys = view.root.rngs.codes()
    streams = ", ".join(keys) if isinstance(keys, dict) and keys else "none"
    count = sum(map(_size, jax.tree.leaves(view.params)))
    return f"{view.definition!r}\n# bound: {mode} mode, {count:,} parameters, rngs: {streams}"


def _size(leaf: Any) -> int:
    return int(np.prod(getattr(leaf, "shape", ()), dtype=np.int64))
