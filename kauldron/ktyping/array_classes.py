"""Which library an array belongs to, without importing any of them.

A value can only be an array of a library that is already loaded, so its class is
compared with what `sys.modules` holds. The answer is remembered per Python class.
"""

from __future__ import annotations

import sys
from typing import Any

_SCALARS = (bool, int, float, complex)


class _Marker(type):
    """Makes `isinstance(x, NpArray)` ask the library of `x`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return is_of_class(instance, cls)


class NpArray(metaclass=_Marker):
    """`np.ndarray`, its subclasses, and numpy scalars."""


class JaxArray(metaclass=_Marker):
    """`jax.Array`: concrete arrays, tracers, key arrays."""


class TfArray(metaclass=_Marker):
    """`tf.Tensor` (eager and graph) and `tf.Variable`."""


class TorchArray(metaclass=_Marker):
    """`torch.Tensor` and its subclasses."""


class ScalarLike(metaclass=_Marker):
    """A Python number, or an array of any library."""


class ArraySpecLike(metaclass=_Marker):
    """Something with `shape` and `dtype` that is not itself an array."""


# Library, marker, and the attributes of the library that are its array classes.
_LIBRARIES: tuple[tuple[str, type, tuple[str, ...]], ...] = (
    ("numpy", NpArray, ("ndarray", "generic")),
    ("jax", JaxArray, ("Array", "core.Tracer")),
    ("torch", TorchArray, ("Tensor",)),
    ("tensorflow", TfArray, ("Tensor", "Variable")),
)

DEFAULT_CLASSES = (NpArray, JaxArray)
ALL_LIBRARIES = (NpArray, JaxArray, TfArray, TorchArray)

# From Python class to marker (None: not an array). Dropped when it gets long, so that
# classes made on the fly are not kept alive for ever.
_markers: dict[type, type | None] = {}
_MAX_REMEMBERED = 1000


def library_marker(value: Any) -> type | None:
    """`NpArray`, `JaxArray`, `TfArray` or `TorchArray`; `None` for other values."""
    cls = type(value)
    try:
        return _markers[cls]
    except KeyError:
        pass
    marker, certain = _find_marker(value)
    if certain:
        if len(_markers) >= _MAX_REMEMBERED:
            _markers.clear()
        _markers[cls] = marker
    return marker


def _find_marker(value: Any) -> tuple[type | None, bool]:
    certain = True
    for library, marker, attributes in _LIBRARIES:
        module = sys.modules.get(library)
        if module is None:
            continue
        for attribute in attributes:
            array_class = _loaded_attribute(module, attribute)
            if array_class is None:
                certain = False  # the library is being imported right now
            elif isinstance(value, array_class):
                return marker, True
    return None, certain


def _loaded_attribute(module: Any, path: str) -> Any:
    """`module.path` without triggering imports of lazy modules."""
    found = module
    for name in path.split("."):
        found = vars(found).get(name)
        if found is None:
            return None
    return found


def is_of_class(value: Any, cls: type) -> bool:
    """`isinstance`, with the markers of this file understood."""
    if cls is ScalarLike:
        return isinstance(value, _SCALARS) or library_marker(value) is not None
    if cls is ArraySpecLike:
        return library_marker(value) is None and is_array_spec(value)
    if type(cls) is _Marker:
        return library_marker(value) is cls
    return isinstance(value, cls)


def is_array_spec(value: Any) -> bool:
    """Whether `shape` and `dtype` are there, found without running a property."""
    return _has_static(value, "shape") and _has_static(value, "dtype")


def _has_static(value: Any, name: str) -> bool:
    if any(name in vars(cls) for cls in type(value).__mro__):
        return True
    return name in getattr(value, "__dict__", ())
