"""The arithmetic of value ranges: a straight line in floating point, and rounding."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from kauldron.data.transforms.array_family import array_module
from kauldron.data.transforms.cast import cast


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
        """The line at `x`, for arrays with operators."""
        return (cast(x, self.dtype) - self.shift) * self.scale + self.offset

    def at_numpy(self, x: np.ndarray) -> np.ndarray:
        """The line at `x`, with as few passes over memory as possible."""
        if x.dtype.kind == "c":
            raise TypeError(f"expected real numbers, got {x.dtype}.")
        out = np.empty(x.shape, self.dtype)
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
        """Whether no number of an integer dtype lands outside `[low, high]`."""
        if dtype.kind not in "iub":
            return False
        limits = (0, 1) if dtype.kind == "b" else _integer_limits(dtype)
        ends = self.at_numpy(np.array(limits, dtype))
        return bool(np.all((self.low <= ends) & (ends <= self.high)))


@functools.lru_cache(maxsize=256)
def line_between(
    in_vrange: tuple[float, float], vrange: tuple[float, float], dtype: np.dtype
) -> Line:
    """The line that takes one range to the other, for results of this dtype."""
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
    """Cast floats of NumPy or jax; to integers by rounding, without overflow."""
    if array.dtype == dtype:
        return array
    if dtype.kind in "iu":
        xnp = array_module(array)
        array = xnp.clip(xnp.round(array), *limits_in(dtype, array.dtype))
    elif dtype.kind == "b":
        array = array_module(array).round(array)
    return cast(array, dtype)


def limits_in(dtype: np.dtype, float_dtype: Any) -> tuple[Any, Any]:
    """The outermost floats which an integer dtype can hold.

    >>> [int(limit) for limit in limits_in(np.dtype("int32"), np.float32)]
    [-2147483648, 2147483520]
    """
    compute = np.dtype(float_dtype).type
    low, high = _integer_limits(dtype)
    upper = compute(high)
    if int(upper) > high:
        upper = np.nextafter(upper, compute(0))
    return compute(low), upper


def _integer_limits(dtype: np.dtype) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
