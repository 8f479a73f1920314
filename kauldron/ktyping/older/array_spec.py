"""`ArraySpec(dtype, shape)`: what describes an array, and the annotation for it."""

from __future__ import annotations

import dataclasses
from typing import Any

from kauldron.ktyping.array_classes import ArraySpecLike
from kauldron.ktyping.dtypes import dtype_name


class _AcceptsEverySpec(type):
    """As an annotation, `ArraySpec` means whatever has a shape and a dtype."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, ArraySpecLike)


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySpec(metaclass=_AcceptsEverySpec):
    """The dtype and shape of an array; equal to whatever has the same ones.

    >>> print(ArraySpec("float32", (2, 3)))
    float32[2, 3]
    """

    dtype: Any
    shape: tuple[int | None, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", _as_numpy(self.dtype))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArraySpecLike):
            return NotImplemented
        shape, dtype = other.shape, other.dtype  # pyright: ignore[reportAttributeAccessIssue]
        same_dtype = dtype_name(_as_numpy(dtype)) == dtype_name(self.dtype)
        return same_dtype and tuple(shape) == self.shape

    def __hash__(self) -> int:
        return hash((dtype_name(self.dtype), self.shape))

    def __repr__(self) -> str:
        return f"ArraySpec(dtype={dtype_name(self.dtype)}, shape={self.shape})"

    def __str__(self) -> str:
        return f"{dtype_name(self.dtype)}[{', '.join(map(str, self.shape))}]"


def _as_numpy(dtype: Any) -> Any:
    """The numpy dtype, or `dtype` itself if it has none (keys of JAX)."""
    import numpy as np

    try:
        return np.dtype(dtype)
    except TypeError:
        return dtype
