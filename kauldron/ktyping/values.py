"""What a value is, without importing the library it belongs to, and how it is shown.

A value can only be an array of a library that is already loaded, so its class is
compared with what `sys.modules` holds. The answer is remembered per Python class. The
texts are for messages, so making them never raises.
"""

from __future__ import annotations

import collections.abc
import re
import sys
import types
import typing
from typing import Any

from kauldron.ktyping.shapes.sizes import UnknownDim, static_shape

PYTHON_SCALARS = (bool, int, float, complex)


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
# classes made on the fly are not kept alive.
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
        return isinstance(value, PYTHON_SCALARS) or library_marker(value) is not None
    if cls is ArraySpecLike:
        return library_marker(value) is None and is_array_spec(value)
    if type(cls) is _Marker:
        return library_marker(value) is cls
    return isinstance(value, cls)


def is_array_spec(value: Any) -> bool:
    """Return whether there are `shape` and `dtype`, without running a property."""
    return _has_static(value, "shape") and _has_static(value, "dtype")


def _has_static(value: Any, name: str) -> bool:
    if any(name in vars(cls) for cls in type(value).__mro__):
        return True
    return name in getattr(value, "__dict__", ())


def dtype_name(dtype: Any) -> str:
    """`float32` for the dtype object of any library; '' for what is not a dtype."""
    if getattr(dtype, "names", None) == ("float0",):
        return "float0"
    if isinstance(dtype, type):
        return "" if dtype in PYTHON_SCALARS else dtype.__name__
    name = getattr(dtype, "name", None)
    if isinstance(name, str):
        return name.removesuffix("_ref")  # TensorFlow's variables
    return str(dtype).removeprefix("torch.")


#
# Values as text
#


_LIBRARY_NAMES = {NpArray: "np", JaxArray: "jax", TfArray: "tf", TorchArray: "torch"}
_MAX_WIDTH = 40
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # differs from run to run


def format_value(value: Any) -> str:
    """`np.f32[2 3]` for an array, the first and last characters of `repr` otherwise.

    >>> format_value({"images": "x" * 50})
    "{'images': 'xxxxxxxxxxxxxxxxxxxxxxxx...}"
    """
    try:
        array_text = _format_array(value)
        if array_text is not None:
            return array_text
        text = _compact_repr(value, depth=3)
    except Exception:  # whatever the value's own code does
        text = f"<{type(value).__name__}>"
    text = _ADDRESS.sub("", " ".join(text.split()))
    if len(text) <= _MAX_WIDTH:
        return text
    return f"{text[: _MAX_WIDTH - 4]}...{text[-1]}"


def _format_array(value: Any) -> str | None:
    marker = library_marker(value)
    if marker is None and (isinstance(value, type) or not is_array_spec(value)):
        return None
    library = _LIBRARY_NAMES[marker] if marker else type(value).__name__
    return f"{library}.{short_dtype(value.dtype)}[{_format_shape(value.shape)}]"


def _format_shape(shape: Any) -> str:
    sizes = static_shape(shape)
    if sizes is None:
        return "..."
    return " ".join("_" if isinstance(x, UnknownDim) else str(x) for x in sizes)


def _compact_repr(value: Any, depth: int) -> str:
    """`repr` with arrays in built-in containers shortened."""
    array_text = _format_array(value)
    if array_text is not None:
        return array_text
    if depth == 0 or type(value) not in (dict, list, tuple, set, frozenset):
        return repr(value)
    if type(value) is dict:
        items = (
            f"{key!r}: {_compact_repr(item, depth - 1)}"
            for key, item in _first_items(value.items())
        )
        return f"{{{', '.join(items)}}}"
    items = [_compact_repr(item, depth - 1) for item in _first_items(value)]
    if type(value) is list:
        return f"[{', '.join(items)}]"
    if type(value) is tuple:
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    return f"{{{', '.join(items)}}}" if items else repr(value)


def _first_items(items: Any) -> list[Any]:
    """More than this does not fit into a message anyway."""
    return [item for item, _ in zip(items, range(_MAX_WIDTH))]


_SHORT_DTYPES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"bool_?", "bool_"),
        (r"uint(\d+)", r"ui\1"),
        (r"int(\d+)", r"i\1"),
        (r"bfloat16", "bf16"),
        (r"longdouble", "f128"),
        (r"float(\d+)(_\w+)?", r"f\1\2"),
        (r"(str|bytes|string|object|StringDType)\d*", "str"),
        (r"datetime64.*", "datetime"),
        (r"timedelta64.*", "timedelta"),
    )
]


def short_dtype(dtype: Any) -> str:
    """`f32`, `ui8`, `bf16`, `key<fry>`, ..."""
    name = dtype_name(dtype) or getattr(dtype, "__name__", str(dtype))
    for pattern, replacement in _SHORT_DTYPES:
        match = pattern.fullmatch(name)
        if match:
            return match.expand(replacement).removesuffix("None")
    return name


#
# Annotations
#


def format_annotation(annotation: Any) -> str:
    """`dict[str, Float['a']] | None`: names without modules.

    >>> format_annotation(typing.Optional[int])
    'int | None'
    """
    try:
        return _format_annotation(annotation)
    except Exception:
        return str(annotation)


def _format_annotation(annotation: Any) -> str:
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is ...:
        return "..."
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, list):  # the arguments of a Callable
        return f"[{', '.join(map(_format_annotation, annotation))}]"
    if isinstance(annotation, tuple):  # as in isinstance(x, (A, B))
        return " | ".join(map(_format_annotation, annotation))
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None:
        return _format_plain(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_format_annotation, args))
    if origin is typing.Annotated:
        return _format_annotation(args[0])
    name = _strip_module(getattr(origin, "__name__", None) or str(origin))
    if origin is collections.abc.Callable:
        name = "Callable"
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    return f"{name}[{', '.join(map(_format_annotation, args)) or '()'}]"


def _format_plain(annotation: Any) -> str:
    forward = getattr(annotation, "__forward_arg__", None)
    if forward is not None:
        return forward
    name = getattr(annotation, "__name__", None)
    if isinstance(annotation, type) and "[" in str(name):
        return str(name)  # an array type: its name is its text
    return _strip_module(name if isinstance(name, str) else str(annotation))


def _strip_module(name: str) -> str:
    head, bracket, tail = name.partition("[")
    return f"{head.rpartition('.')[2]}{bracket}{tail}"


def class_name(cls: type) -> str:
    """Return the full dotted name of a class, without `builtins`."""
    module, name = cls.__module__, cls.__qualname__
    return name if module in ("builtins", None) else f"{module}.{name}"


def is_mock(value: Any) -> bool:
    """Return whether this is from `unittest.mock`: it stands in for anything."""
    mock = sys.modules.get("unittest.mock")
    return mock is not None and isinstance(value, getattr(mock, "NonCallableMock", ()))
