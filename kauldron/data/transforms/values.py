"""Values of fields: kinds of arrays, dtypes, and transforms of single values.

A field holds NumPy, jax or TensorFlow arrays, told apart without importing them.
TensorFlow code works on eager tensors and inside `tf.data` maps, where sizes may be
unknown until the graph runs.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import importlib
import math
import operator
import sys
from types import ModuleType
from typing import Any, ClassVar, TypeAlias

import ml_dtypes
import numpy as np

from kauldron.data.engine.batch_memory import empty
from kauldron.data.engine.trees import describe_leaf, is_jax
from kauldron.data.transforms.fields import ElementWiseTransform, NotAnArrayError
from kauldron.errors import did_you_mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayTransform(ElementWiseTransform):
    """Base of transforms that treat an array and a column of arrays alike."""

    traceable = True

    @abc.abstractmethod
    def _map_array(self, array: Any, num_batch_axes: int) -> Any:
        """Return the new array, or column of arrays if `num_batch_axes` is 1."""

    def map_element(self, element: Any) -> Any:
        return self._map_array(as_array(element), num_batch_axes=0)

    def map_element_batch(self, elements: Any) -> Any:
        return self._map_array(as_array(elements), num_batch_axes=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cast(ElementWiseTransform):
    """Casts fields to another dtype, as `astype` does.

    Attributes:
      key: The field or fields to cast.
      dtype: Anything `np.dtype` takes, also by name (`"float32"`, `"bfloat16"`), a
        scalar type of `jax.numpy`, a TensorFlow dtype.

    Example:
      >>> Cast(key="label", dtype="int32").map({"label": np.int64(3)})
      {'label': array(3, dtype=int32)}
    """

    dtype: DType

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dtype", as_dtype(self.dtype))

    def map_element(self, element: Any) -> Any:
        return cast(as_array(element), self.dtype)

    map_element_batch = map_element


def cast(array: Any, dtype: np.dtype) -> Any:
    """Return `array.astype(dtype)`, for every array family."""
    if is_tf(array):
        return tf.cast(array, tf.as_dtype(dtype))
    if is_jax(array):
        import jax

        return array.astype(jax.dtypes.canonicalize_dtype(dtype))
    return array.astype(dtype, copy=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueRange(ElementWiseTransform):
    """Maps `in_vrange` linearly to `vrange`.

    Attributes:
      key: The field or fields to map.
      vrange: Range of the result; `(1, 0)` inverts.
      in_vrange: Range of the input.
      dtype: Of the result. Integers are rounded.
      clip_values: Whether values outside `in_vrange` end at the border of `vrange`.

    Example:
      >>> to_unit = ValueRange(key="image", vrange=(0, 1))
      >>> to_unit.map({"image": np.array([0, 255], np.uint8)})["image"]
      array([0., 1.], dtype=float32)
    """

    vrange: tuple[float, float]
    in_vrange: tuple[float, float] = (0.0, 255.0)
    dtype: DType = np.float32
    clip_values: bool = True

    traceable = True
    _line: ClassVar[Line]  # from range to range

    def __post_init__(self) -> None:
        super().__post_init__()
        dtype = as_dtype(self.dtype)
        if dtype.kind == "c":
            raise TypeError(f"ValueRange(dtype={dtype}): expected real numbers.")
        object.__setattr__(self, "dtype", dtype)
        for name in ("vrange", "in_vrange"):
            object.__setattr__(self, name, _as_range(getattr(self, name), name))
        low, high = self.in_vrange
        if low == high:
            raise ValueError(
                f"ValueRange(in_vrange={self.in_vrange}): both ends are equal, so"
                " nothing can be scaled."
            )
        line = _line_between(self.in_vrange, self.vrange, dtype)
        object.__setattr__(self, "_line", line)

    def map_element(self, element: Any) -> Any:
        array = as_array(element)
        line = self._line
        if is_tf(array) or is_jax(array):
            result = line.at(array)
            if self.clip_values:
                result = clip(result, line.low, line.high)
        else:
            result = line.at_numpy(array)
            if self.clip_values and not line.keeps_inside(array.dtype):
                np.clip(result, line.low, line.high, out=result)
        return round_and_cast(result, self.dtype)

    map_element_batch = map_element


def _as_range(ends: Any, argument: str) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in ends)
    except (TypeError, ValueError):
        raise ValueError(
            f"ValueRange({argument}={ends!r}): expected two numbers."
        ) from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"ValueRange({argument}={ends!r}): expected finite numbers.")
    return low, high


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """`(x - shift) * scale + offset`, computed in `dtype`; `low` and `high` bound it."""

    shift: Any
    scale: Any
    offset: Any
    low: Any
    high: Any
    dtype: np.dtype

    def at(self, x: Any) -> Any:
        """Return the line at `x`, for arrays with operators."""
        if _kind(x) == "c":
            raise TypeError(f"expected real numbers, got {describe_leaf(x)}.")
        return (cast(x, self.dtype) - self.shift) * self.scale + self.offset

    def at_numpy(self, x: np.ndarray) -> np.ndarray:
        """Return the line at `x`, with as few passes over memory as possible."""
        if x.dtype.kind == "c":
            raise TypeError(f"expected real numbers, got {describe_leaf(x)}.")
        out = empty(x.shape, self.dtype)
        if self.shift:
            np.subtract(x, self.shift, out=out, dtype=self.dtype)
            np.multiply(out, self.scale, out=out)
        else:
            np.multiply(x, self.scale, out=out, dtype=self.dtype)
        if self.offset:
            np.add(out, self.offset, out=out)
        return out

    @functools.lru_cache(maxsize=256)  # noqa: B019  lines are few and small
    def keeps_inside(self, dtype: np.dtype) -> bool:
        """Return whether no number of an integer dtype lands outside `[low, high]`."""
        if dtype.kind not in "iub":
            return False
        limits = (0, 1)
        if dtype.kind != "b":
            limits = np.iinfo(dtype).min, np.iinfo(dtype).max
        ends = self.at_numpy(np.array(limits, dtype))
        return bool(np.all((self.low <= ends) & (ends <= self.high)))


def _line_between(
    in_vrange: tuple[float, float], vrange: tuple[float, float], dtype: np.dtype
) -> Line:
    """Return the line that takes one range to the other, for results of this dtype."""
    compute = np.dtype(np.float64 if dtype == np.float64 else np.float32).type
    (in_low, in_high), (low, high) = in_vrange, vrange
    width = in_high - in_low
    scale = (high - low) / width
    # One multiplication and one addition lose digits when the input is far from zero.
    if max(abs(in_low), abs(in_high)) <= 4 * abs(width):
        shift, offset = 0.0, low - in_low * scale
    else:
        shift, offset = in_low, low
    numbers = (shift, scale, offset, min(vrange), max(vrange))
    return Line(*map(compute, numbers), dtype=np.dtype(compute))


def round_and_cast(array: Any, dtype: np.dtype) -> Any:
    """Cast floats; to integers by rounding, without overflow."""
    if array.dtype == dtype:
        return array
    if dtype.kind in "iub":
        array = (tf if is_tf(array) else array_module(array)).round(array)
    if dtype.kind in "iu":
        array = clip(array, *limits_in(dtype, array.dtype))
    return cast(array, dtype)


def clip(array: Any, low: Any, high: Any) -> Any:
    """Return the array with values that lie outside of the limits moved to them."""
    if is_tf(array):
        return tf.clip_by_value(array, low, high)
    return array_module(array).clip(array, low, high)


def limits_in(dtype: np.dtype, float_dtype: Any) -> tuple[Any, Any]:
    """Return the outermost floats which an integer dtype can hold.

    >>> [int(limit) for limit in limits_in(np.dtype("int32"), np.float32)]
    [-2147483648, 2147483520]
    """
    compute = as_dtype(float_dtype).type
    info = np.iinfo(dtype)
    upper = compute(info.max)
    if int(upper) > info.max:
        upper = np.nextafter(upper, compute(0))
    return compute(info.min), upper


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneHot(ArrayTransform):
    """Turns integer labels into float32 vectors.

    A negative label stands for "none", as in padded lists of labels. A label that is too
    large is an error; on the device, where nothing can be raised, its vector is NaN.

    Attributes:
      key: The field or fields with labels.
      num_classes: Length of the vectors.
      multi: Whether a list of labels gives one vector with several ones, rather than
        one row per label.
      on: Value where the label is.
      off: Value elsewhere.

    Example:
      >>> OneHot(key="label", num_classes=3).map({"label": 1})["label"]
      array([0., 1., 0.], dtype=float32)
      >>> OneHot(key="label", num_classes=3).map({"label": [0, 2]})["label"]
      array([1., 0., 1.], dtype=float32)
    """

    num_classes: int
    multi: bool = True
    on: float = 1.0
    off: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if operator.index(self.num_classes) < 1:
            raise ValueError(f"OneHot(num_classes={self.num_classes}): expected >= 1.")

    def _map_array(self, array: Any, num_batch_axes: int) -> Any:
        labels = array
        if not is_integer(labels):
            raise TypeError(
                f"OneHot: labels must be integers, got {describe_leaf(labels)}."
            )
        merge = self.multi and len(labels.shape) - num_batch_axes == 1
        if is_tf(labels):
            return _one_hot_of_tensor(self, labels, merge=merge)
        if not is_jax(labels) and labels.size and labels.max() >= self.num_classes:
            raise ValueError(
                f"OneHot(num_classes={self.num_classes}): there is a label"
                f" {labels.max()}, and labels count from 0. Set"
                f" num_classes={labels.max() + 1} or more."
            )
        xnp = array_module(labels)
        hits = labels[..., None] == xnp.arange(self.num_classes)
        if merge:
            hits = hits.any(axis=-2)
        result = xnp.where(hits, xnp.float32(self.on), xnp.float32(self.off))
        if not is_jax(labels):
            return result
        # A compiled function cannot raise.
        is_wrong = (labels >= self.num_classes)[..., None]
        is_wrong = is_wrong.any(axis=-2) if merge else is_wrong
        return xnp.where(is_wrong, xnp.float32(np.nan), result)


def _one_hot_of_tensor(transform: OneHot, labels: Any, *, merge: bool) -> Any:
    """Encode; unknown labels give all zeros, since a graph cannot raise."""
    labels = tf.cast(labels, tf.int64)
    hits = labels[..., tf.newaxis] == tf.range(transform.num_classes, dtype=tf.int64)
    if merge:
        hits = tf.reduce_any(hits, axis=-2)
    on, off = (tf.constant(x, tf.float32) for x in (transform.on, transform.off))
    return tf.where(hits, on, off)


# ----------------------------------------------------------------------------
# Kinds of arrays
# ----------------------------------------------------------------------------


_NUMBERS_AND_LISTS = (bool, int, float, complex, np.generic, list, tuple)


def is_tf(element: Any) -> bool:
    """Return whether this is a `tf.Tensor`, eager or symbolic."""
    return isinstance(element, getattr(sys.modules.get("tensorflow"), "Tensor", ()))


def array_module(element: Any) -> ModuleType:
    """Return `jax.numpy` for jax arrays, `numpy` for everything else."""
    if is_jax(element):
        return sys.modules["jax"].numpy
    return np


def as_array(element: Any) -> Any:
    """Return the field as an array of its family; numbers and lists become NumPy."""
    if not isinstance(element, np.ndarray):
        if is_jax(element) or (is_tf(element) and element.dtype.name != "string"):
            return element
        if not isinstance(element, _NUMBERS_AND_LISTS):  # also strings of TensorFlow
            raise NotAnArrayError(_expected_an_array(element))
        element = _from_python(element)
    if element.dtype.kind in "OUST":
        raise NotAnArrayError(_expected_an_array(element))
    return element


def as_images(element: Any, transform: Any, num_batch_axes: int = 0) -> Any:
    """Return the field as an array with at least the axes `(..., h, w, c)`."""
    images = as_array(element)
    shape = tuple(images.shape[num_batch_axes:])
    if len(shape) < 3:
        raise ValueError(
            f"{type(transform).__name__} expects (..., h, w, c), got shape {shape}; add"
            " a channel with kd.data.Rearrange(pattern='h w -> h w 1')."
        )
    return images


def is_integer(array: Any) -> bool:
    """Return whether an array of any family holds integers or booleans."""
    return _kind(array) in "iub"


def _kind(array: Any) -> str:
    dtype = array.dtype
    return np.dtype(getattr(dtype, "as_numpy_dtype", dtype)).kind


def _from_python(element: Any) -> np.ndarray:
    try:
        return np.asarray(element)
    except ValueError as error:
        raise ValueError(
            f"The list is ragged, its rows have different lengths: {element!r:.200}"
        ) from error


def _expected_an_array(element: Any) -> str:
    return f"expected an array, a number or a list of numbers, got {describe_leaf(element)}."


# ----------------------------------------------------------------------------
# Dtypes
# ----------------------------------------------------------------------------


DType: TypeAlias = Any  # what np.dtype takes, jnp.bfloat16, "bfloat16", tf.float32


def as_dtype(dtype: DType) -> np.dtype:
    """Return a dtype of numbers as one of NumPy.

    >>> as_dtype("bfloat16").itemsize
    2
    >>> as_dtype("flaot32")
    Traceback (most recent call last):
    TypeError: dtype='flaot32' is not a dtype. Did you mean 'float32'?
    """
    if dtype is None:
        raise TypeError("dtype must be given, such as 'float32'; got None.")
    try:
        result = np.dtype(_numpy_spelling(dtype))
    except TypeError as error:
        hint = did_you_mean(dtype, [*np.sctypeDict, "bfloat16"])
        raise TypeError(f"dtype={dtype!r} is not a dtype.{hint}") from error
    if result.kind in "OUST" or result.names:
        raise TypeError(f"dtype={dtype!r} is not a dtype of numbers.")
    return result


def _numpy_spelling(dtype: DType) -> Any:
    if hasattr(dtype, "as_numpy_dtype"):  # TensorFlow
        return dtype.as_numpy_dtype
    if isinstance(dtype, str) and dtype not in np.sctypeDict:
        return getattr(ml_dtypes, dtype, dtype)
    return dtype


# ----------------------------------------------------------------------------
# TensorFlow
# ----------------------------------------------------------------------------


class _LazyTensorFlow:
    """Stands for the module `tensorflow`, which is an optional dependency."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspection must not load TensorFlow
            raise AttributeError(name)
        try:
            return getattr(importlib.import_module("tensorflow"), name)
        except ModuleNotFoundError as error:
            raise ImportError(
                'kd.data.tf needs TensorFlow: pip install "kauldron[tf]"'
            ) from error


tf: Any = _LazyTensorFlow()
