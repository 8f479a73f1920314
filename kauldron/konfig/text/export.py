"""Real objects as data that `konfig.resolve` turns back into equal objects."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import inspect
import os
import pathlib
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from kauldron.immutabledict import ImmutableDict
from kauldron.konfig.errors import CycleError
from kauldron.konfig.text.json_format import to_plain
from kauldron.konfig.text.leaves import call_node, call_of, const_of
from kauldron.konfig.tree.node import (
    CONST_KEY,
    QUALNAME_KEY,
    Node,
    Parts,
    expression,
)

EXPORT_HOOK = "__konfig_export__"


def export(obj: Any) -> Any:
    """Turn an object into data for JSON, from which `konfig.resolve` rebuilds it.

    Args:
      obj: A dataclass, an array, a container or anything else that can be named or
        written down. A class says itself how, with a method `__konfig_export__` that
        returns a dict with `__qualname__` and the arguments.

    Returns:
      The data: `konfig.resolve(data, freeze=False)` equals `obj`.

    Raises:
      NotImplementedError: It is not known how to export a part; names its path.
      ValueError: A class or function cannot be imported by name.

    Example:
      >>> from kauldron import konfig
      >>> konfig.export({"a": (1, 2)})
      {'__qualname__': 'builtins:dict', '0': [['a', {'__qualname__': 'builtins.tuple', '0': [1, 2]}]]}
      >>> konfig.resolve(konfig.export({"a": (1, 2)}), freeze=False)
      {'a': (1, 2)}
    """
    return _Exporter().export(obj, ())


def export_qualname(obj: Any) -> str:
    """Return the qualified name of the type of an object, for `__konfig_export__`.

    >>> import fractions
    >>> export_qualname(fractions.Fraction(1, 2))
    'fractions:Fraction'
    """
    return _symbol_name(type(obj), "The class of the object")


def _symbol_name(symbol: Any, place: str) -> str:
    """Return `module:Outer.Inner`; raise `ValueError` if that is not the symbol."""
    module, path = symbol.__module__, symbol.__qualname__
    if "<" in path:
        raise ValueError(
            f"{place} is {path!r} of {module!r}, which cannot be exported: it is a "
            "lambda or local to a function, so it cannot be imported by name."
        )
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    if found != symbol:
        raise ValueError(
            f"{place} cannot be exported: {module}.{path} is not the same object."
        )
    return f"{module}:{path}"


class _Exporter:
    """One call of `export`."""

    def __init__(self) -> None:
        self.open: set[int] = set()  # the objects around the current one

    def export(self, obj: Any, parts: Parts) -> Any:
        if obj is None or type(obj) in (bool, int, float, str):
            return obj
        if id(obj) in self.open:
            raise CycleError(f"{_place(parts)} contains itself.")
        self.open.add(id(obj))
        try:
            return self.export_object(obj, parts)
        finally:
            self.open.discard(id(obj))

    def export_object(self, obj: Any, parts: Parts) -> Any:
        if inspect.isclass(obj) or inspect.isroutine(obj):
            return {CONST_KEY: _symbol_name(obj, _place(parts))}
        if hasattr(type(obj), EXPORT_HOOK):
            return self.from_hook(obj, parts)
        if isinstance(obj, Node):
            return to_plain(obj)
        if dataclasses.is_dataclass(obj):
            return self.from_fields(obj, parts)
        array = export_array(obj, _place(parts))
        if array is not None:
            return array
        for kinds, method in _BY_TYPE:
            if isinstance(obj, kinds):
                return method(self, obj, parts)
        self.refuse(obj, parts)

    def refuse(self, obj: Any, parts: Parts) -> NoReturn:
        raise NotImplementedError(
            f"{_place(parts)} of type {type(obj).__module__}.{type(obj).__qualname__} "
            f"cannot be exported. Give the class a method {EXPORT_HOOK} that returns a "
            "dict with '__qualname__' and the arguments."
        )

    # --------------------------------------------------------------------------------
    # Kinds of objects
    # --------------------------------------------------------------------------------

    def from_hook(self, obj: Any, parts: Parts) -> Any:
        exported = getattr(obj, EXPORT_HOOK)()
        if QUALNAME_KEY not in exported:
            raise ValueError(
                f"{type(obj).__qualname__}.{EXPORT_HOOK} must return a dict with the "
                f'line `"{QUALNAME_KEY}": konfig.export_qualname(self)`.'
            )
        return {key: self.export(v, (*parts, key)) for key, v in exported.items()}

    def from_fields(self, obj: Any, parts: Parts) -> Any:
        return {
            QUALNAME_KEY: _class_name(obj, parts),
            **{
                field.name: self.export(getattr(obj, field.name), (*parts, field.name))
                for field in dataclasses.fields(obj)
                if field.init
            },
        }

    def from_mapping(self, obj: Any, parts: Parts) -> Any:
        if type(obj) not in (dict, collections.OrderedDict, ImmutableDict):
            self.refuse(obj, parts)  # its constructor may want something else
        items = [
            [self.export(key, parts), self.export(value, (*parts, key))]
            for key, value in obj.items()
        ]
        return {QUALNAME_KEY: _class_name(obj, parts), "0": items}

    def from_list(self, obj: Any, parts: Parts) -> Any:
        return [self.export(item, (*parts, i)) for i, item in enumerate(obj)]

    def from_tuple(self, obj: Any, parts: Parts) -> Any:
        items = self.from_list(obj, parts)
        if type(obj) is tuple:
            return {QUALNAME_KEY: "builtins.tuple", "0": items}
        if not hasattr(obj, "_fields"):
            self.refuse(obj, parts)
        return call_node(_class_name(obj, parts), *items)

    def from_set(self, obj: Any, parts: Parts) -> Any:
        items = sorted((self.export(item, parts) for item in obj), key=repr)
        return call_node(_symbol_name(type(obj), _place(parts)), items)

    def from_enum(self, obj: Any, parts: Parts) -> Any:
        kind = _class_name(obj, parts)
        if obj.name in type(obj).__members__:
            return {CONST_KEY: f"{kind}.{obj.name}"}
        return call_node(kind, obj.value)  # a combination of flags

    def from_path(self, obj: Any, parts: Parts) -> Any:
        if type(obj) in (pathlib.PosixPath, pathlib.WindowsPath):
            return call_node("pathlib:Path", os.fspath(obj))
        return call_node(_class_name(obj, parts), os.fspath(obj))

    def from_partial(self, obj: Any, parts: Parts) -> Any:
        args = [
            self.export(a, (*parts, i)) for i, a in enumerate((obj.func, *obj.args))
        ]
        named = {k: self.export(v, (*parts, k)) for k, v in obj.keywords.items()}
        return {**call_node("functools:partial", *args), **named}

    def from_leaf(self, obj: Any, parts: Parts) -> Any:
        symbol, arguments = call_of(obj) or ("", [])
        return call_node(symbol, *(self.export(a, parts) for a in arguments))


_BY_TYPE: tuple[tuple[Any, Callable[[_Exporter, Any, Parts], Any]], ...] = (
    (enum.Enum, _Exporter.from_enum),
    ((int, float, str), lambda self, obj, parts: obj),
    ((ImmutableDict, dict), _Exporter.from_mapping),
    (list, _Exporter.from_list),
    (tuple, _Exporter.from_tuple),
    ((set, frozenset), _Exporter.from_set),
    (functools.partial, _Exporter.from_partial),
    (os.PathLike, _Exporter.from_path),
    ((slice, bytes, complex), _Exporter.from_leaf),
    (type(...), lambda self, obj, parts: {CONST_KEY: const_of(obj)}),
)


def _class_name(obj: Any, parts: Parts) -> str:
    return _symbol_name(type(obj), f"The class of {_place(parts)}")


def _place(parts: Parts) -> str:
    return expression(parts, root="obj")


_WARN_BYTES = 1_000_000


def export_array(obj: Any, place: str) -> dict[str, Any] | None:
    """Return the export of an array or dtype; `None` if it is neither."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "generic"):
        return None  # then there are no arrays either
    if isinstance(obj, numpy.dtype):
        return {QUALNAME_KEY: "numpy:dtype", "0": _dtype_name(obj)}
    if isinstance(obj, (numpy.ndarray, numpy.generic)):
        return _array_call("numpy", numpy.asarray(obj), place)
    jax: Any = sys.modules.get("jax")
    if not isinstance(obj, getattr(jax, "Array", ())):
        return None
    if jax.dtypes.issubdtype(obj.dtype, jax.dtypes.prng_key):
        raise NotImplementedError(f"{place} is a random key, which cannot be exported.")
    return _array_call("jax.numpy", numpy.asarray(obj), place)


def _array_call(module: str, array: Any, place: str) -> dict[str, Any]:
    if array.dtype.hasobject:
        raise NotImplementedError(
            f"{place} is an array of Python objects, which cannot be exported."
        )
    if array.nbytes > _WARN_BYTES:
        warnings.warn(
            f"{place} is an array of {array.nbytes / 1e6:.1f} MB: exported as text it "
            "makes a large config.",
            stacklevel=2,
        )
    dtype = _dtype_name(array.dtype)
    if array.size == 0:  # nested lists would forget the shape
        shape = list(array.shape)
        return {QUALNAME_KEY: f"{module}:zeros", "0": shape, "dtype": dtype}
    values = _listed(array)
    return {QUALNAME_KEY: f"{module}:asarray", "0": values, "dtype": dtype}


def _listed(array: Any) -> Any:
    """Return nested lists of what JSON can hold."""
    kind = array.dtype.kind
    if kind in "Mm":  # dates and durations, as texts and counts
        array = array.astype(str if kind == "M" else "int64")
    return _called(array.tolist()) if kind in "cS" else array.tolist()


def _called(values: Any) -> Any:
    """Return nested lists with the calls that make their items."""
    if isinstance(values, list):
        return [_called(value) for value in values]
    symbol, arguments = call_of(values) or ("", [])
    return call_node(symbol, *arguments)


def _dtype_name(dtype: Any) -> str:
    """Return `float32`, `bfloat16`; for texts and dates their numpy code."""
    if dtype.names is not None:
        raise NotImplementedError(f"The record type {dtype} cannot be exported.")
    return dtype.str if dtype.kind in "USMm" else dtype.name
