"""What a field holds: NumPy, jax or TensorFlow arrays, told apart without imports."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

_NUMBERS_AND_LISTS = (bool, int, float, complex, np.generic, list, tuple)


class NotAnArrayError(TypeError):
    """A transform of arrays met a field that holds none."""


def is_jax(element: Any) -> bool:
    """True for a `jax.Array`, traced ones included."""
    return isinstance(element, getattr(sys.modules.get("jax"), "Array", ()))


def is_tf(element: Any) -> bool:
    """True for a `tf.Tensor`, eager or symbolic."""
    return isinstance(element, getattr(sys.modules.get("tensorflow"), "Tensor", ()))


def array_module(element: Any) -> ModuleType:
    """`jax.numpy` for jax arrays, `numpy` for everything else.

    >>> array_module(np.zeros(3)).__name__
    'numpy'
    """
    if is_jax(element):
        return sys.modules["jax"].numpy
    return np


def as_array(element: Any) -> Any:
    """The field as an array of its own family, numbers and lists as NumPy arrays.

    Raises:
      NotAnArrayError: Strings, bytes, objects, `None`, dicts, string arrays.
      ValueError: A list whose rows have different lengths.
    """
    if not isinstance(element, np.ndarray):
        if is_jax(element) or (is_tf(element) and element.dtype.name != "string"):
            return element
        if not isinstance(element, _NUMBERS_AND_LISTS):  # also strings of TensorFlow
            raise NotAnArrayError(_expected_an_array(element))
        element = _from_python(element)
    if element.dtype.kind in "OUST":
        raise NotAnArrayError(_expected_an_array(element))
    return element


def is_integer(array: Any) -> bool:
    """True for integer and boolean arrays of every family."""
    if is_tf(array):
        return array.dtype.is_integer or array.dtype.is_bool
    return np.dtype(array.dtype).kind in "iub"


def describe(element: Any) -> str:
    """Short text for error messages: dtype and shape, or the type.

    >>> describe(np.zeros((2, 3), np.uint8))
    'uint8[2,3]'
    >>> describe("cat")
    'str'
    """
    if hasattr(element, "dtype") and hasattr(element, "shape"):
        dtype = getattr(element.dtype, "name", element.dtype)
        shape = ",".join("?" if size is None else str(size) for size in element.shape)
        return f"{dtype}[{shape}]"
    return type(element).__name__


def _from_python(element: Any) -> np.ndarray:
    try:
        return np.asarray(element)
    except ValueError as error:
        raise ValueError(
            f"The list is ragged, its rows have different lengths: {element!r:.200}"
        ) from error


def _expected_an_array(element: Any) -> str:
    return f"expected an array, a number or a list of numbers, got {describe(element)}."
