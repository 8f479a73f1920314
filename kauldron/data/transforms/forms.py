"""Which form of a transform a pipeline may use.

A transform says what happens to one record, and may say the same again for a whole
batch (`map_batch`, ...) or for a compiled function (`traceable = True`). A sub-class
that overrides the first must not get the second from its parent: a form counts only if
it is defined in the same class as the per-record method, or in a more derived one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from kauldron.data.transforms.axes import Rearrange
from kauldron.data.transforms.fields import (
    ElementWiseRandomTransform,
    ElementWiseTransform,
)
from kauldron.data.transforms.pillow_images import pillow
from kauldron.data.transforms.transform_types import (
    FilterTransform,
    MapTransform,
    RandomMapTransform,
)

# Method for one record, method for a batch. A `map_batch` that is inherited from
# `ElementWiseTransform` only walks over the fields: then the pair of that class decides.
_FORMS = {
    MapTransform: ("map", "map_batch"),
    FilterTransform: ("filter", "filter_batch"),
    RandomMapTransform: ("random_map", "random_map_batch"),
    ElementWiseTransform: ("map_element", "map_element_batch"),
    ElementWiseRandomTransform: ("random_map_element", "random_map_element_batch"),
}


def batch_form(transform: Any) -> Callable[..., Any] | None:
    """Return the vectorised form of a transform, or `None` if there is none to use.

    Returns:
      For maps `fn(batch)`, for filters `fn(batch) -> bool[n]`, for random maps
      `fn(batch, rngs)`, where the arrays of `batch` have a leading axis over n records.

    Example:
      >>> from kauldron.data.transforms import Cast
      >>> batch_form(Cast(key="x", dtype="int32"))({"x": np.ones((2, 3))})["x"].shape
      (2, 3)
      >>> class MyCast(Cast):
      ...     def map_element(self, element):
      ...         return round(element)
      >>> batch_form(MyCast(key="x", dtype="int32")) is None
      True
    """
    if _batch_depth(transform) is None:
        return None
    names = (name for kind, (_, name) in _FORMS.items() if isinstance(transform, kind))
    return getattr(transform, next(names))


def jax_form(transform: Any) -> Callable[[Any], Any] | None:
    """Return the form of a deterministic map that `jax.jit` can trace, or `None`.

    It takes and returns batches of jax arrays.
    """
    depth = _batch_depth(transform)
    if depth is None or not isinstance(transform, MapTransform):
        return None
    is_traceable = transform.traceable and _depth(transform, "traceable") <= depth
    return batch_form(transform) if is_traceable else None


def warm_up(transform: Any) -> None:
    """Import now what the transform would import at its first use.

    For the consumer's thread, before background threads start: imports in several
    threads at once can lock up.
    """
    if getattr(transform, "takes_encoded_images", False):
        with contextlib.suppress(ImportError):
            pillow("")
    if isinstance(transform, ElementWiseTransform):
        Rearrange(key="x", pattern="a -> a 1").map({"x": np.zeros(1)})


def _batch_depth(transform: Any) -> int | None:
    """Return the depth of the class with the usable batch form, if there is one."""
    classes = type(transform).__mro__
    depth = None
    for kind, (record_method, batch_method) in _FORMS.items():
        if isinstance(transform, kind):
            if depth is None or classes[depth] is kind:
                depth = _depth(transform, batch_method)
            if depth > _depth(transform, record_method):
                return None
    return depth


def _depth(transform: Any, name: str) -> int:
    """Return the index of the class that defines a name, -1 for the instance itself."""
    if name in getattr(transform, "__dict__", {}):
        return -1
    classes = type(transform).__mro__
    defining = (depth for depth, cls in enumerate(classes) if name in vars(cls))
    return next(defining, len(classes))
