"""Linear change of the range of values."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np

from kauldron.data.transforms import tensorflow_forms
from kauldron.data.transforms.array_family import as_array, is_jax, is_tf
from kauldron.data.transforms.dtypes import DType, as_dtype
from kauldron.data.transforms.element_wise import ElementWiseTransform
from kauldron.data.transforms.linear_map import Line, line_between, round_and_cast


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
        line = line_between(self.in_vrange, self.vrange, dtype)
        object.__setattr__(self, "_line", line)

    def map_element(self, element: Any) -> Any:
        array = as_array(element)
        line = self._line
        if is_tf(array):
            return tensorflow_forms.value_range(
                array, line, self.dtype, self.clip_values
            )
        if is_jax(array):
            import jax.numpy as jnp

            result = line.at(array)
            if self.clip_values:
                result = jnp.clip(result, line.low, line.high)
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
