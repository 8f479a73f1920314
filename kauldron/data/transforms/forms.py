"""Which form of a transform a pipeline may use.

A transform says what happens to one record, and may say the same again for a whole
batch (`map_batch`, ...) or for a compiled function (`traceable = True`). A sub-class
that overrides the first must not get the second from its parent: a form counts only if
it is defined in the same class as the per-record method, or in a more derived one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
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

# Method for one record, method for a batch.
_FORMS = {
    MapTransform: ("map", "map_batch"),
    FilterTransform: ("filter", "filter_batch"),
    RandomMapTransform: ("random_map", "random_map_batch"),
}
# In these classes the methods above only walk over the fields and call these.
_ELEMENT_FORMS = {
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
    _, (_, batch_method) = _form_names(transform, _FORMS)
    return getattr(transform, batch_method)


def jax_form(transform: Any) -> Callable[[Any], Any] | None:
    """Return the form of a deterministic map that `jax.jit` can trace, or `None`.

    It takes and returns batches of jax arrays.
    """
    depth = _batch_depth(transform)
    declared = _depth(transform, "traceable")
    if depth is None or declared is None or declared > depth:
        return None
    if not isinstance(transform, MapTransform) or not transform.traceable:
        return None
    return batch_form(transform)


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
    """Return the index in the MRO of the class with the usable batch form, if any."""
    _, form = _form_names(transform, _FORMS)
    owner, element_form = _form_names(transform, _ELEMENT_FORMS)
    depth = _depth_if_usable(transform, form[:1], form[1]) if form else None
    if depth is None or not element_form:
        return depth
    if depth >= 0 and type(transform).__mro__[depth] is owner:
        return _depth_if_usable(transform, element_form[:1], element_form[1])
    return _depth_if_usable(transform, (form[0], element_form[0]), form[1])


def _form_names(
    transform: Any, forms: dict[type, tuple[str, str]]
) -> tuple[type | None, tuple[str, ...]]:
    for owner, names in forms.items():
        if isinstance(transform, owner):
            return owner, names
    return None, ()


def _depth_if_usable(
    transform: Any, record_methods: Sequence[str], batch_method: str
) -> int | None:
    depth = _depth(transform, batch_method)
    depths = [_depth(transform, name) for name in record_methods]
    if depth is None or any(d is not None and d < depth for d in depths):
        return None
    return depth


def _depth(transform: Any, name: str) -> int | None:
    """Index of the class that defines a name: 0 the most derived, -1 the instance."""
    if name in getattr(transform, "__dict__", {}):
        return -1
    classes = enumerate(type(transform).__mro__)
    return next((depth for depth, cls in classes if name in vars(cls)), None)
