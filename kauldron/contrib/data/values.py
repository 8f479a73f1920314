"""Transforms of values: arithmetic on fields, and normalization."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import einops
import numpy as np

from kauldron.contrib.data.arrays import NumpyTransform, takes_tensors
from kauldron.data.transforms import ElementWiseTransform
from kauldron.data.transforms.values import DType, as_array, as_dtype, cast, is_integer

Numbers: TypeAlias = float | Sequence[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Arithmetic(NumpyTransform):
    """An expression of the field and of numbers that broadcast against its last axes."""

    _numbers: ClassVar[tuple[str, ...]] = ()  # attributes that hold them

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._numbers:
            object.__setattr__(self, name, _frozen(getattr(self, name)))

    @abc.abstractmethod
    def _compute(self, array: Any) -> Any: ...

    def _map_array(self, array: Any, num_batch_axes: int) -> Any:
        if num_batch_axes:
            # Numbers with more axes than a record would mix the records.
            ranks = [np.ndim(getattr(self, name)) for name in self._numbers]
            ones = [1] * (max([0, *ranks]) - (len(array.shape) - 1))
            array = array.reshape(array.shape[0], *ones, *array.shape[1:])
        return self._compute(array)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddBias(_Arithmetic):
    """Adds a number, or one number per entry of the last axes.

    Attributes:
      key: The field or fields.
      bias: What to add.

    Example:
      >>> AddBias(key="x", bias=[1, 10]).map({"x": np.array([[0, 1], [2, 3]])})["x"]
      array([[ 1, 11],
             [ 3, 13]])
    """

    bias: Numbers

    _numbers = ("bias",)

    def _compute(self, array: Any) -> Any:
        return array + _operand(self.bias, array)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale(_Arithmetic):
    """Multiplies by a number, or by one number per entry of the last axes.

    Attributes:
      key: The field or fields.
      factor: What to multiply by.
    """

    factor: Numbers

    _numbers = ("factor",)

    def _compute(self, array: Any) -> Any:
        return array * _operand(self.factor, array)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standardize(_Arithmetic):
    """`(x - mean) / std`.

    Attributes:
      key: The field or fields.
      mean: A number, or one per entry of the last axes.
      std: A number, or one per entry of the last axes.
    """

    mean: Numbers
    std: Numbers

    _numbers = ("mean", "std")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not np.all(np.asarray(self.std)):
            raise ValueError(f"Standardize(std={self.std}): cannot divide by zero.")

    def _compute(self, array: Any) -> Any:
        return (array - _operand(self.mean, array)) / _operand(self.std, array)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Normalize(_Arithmetic):
    """Scales by the upper end of `in_vrange`, then standardizes.

    Attributes:
      key: The field or fields.
      in_vrange: Range of the input; it is divided by the upper end.
      normalize_mean: Of the scaled values; a number, or one per channel.
      normalize_std: Of the scaled values; a number, or one per channel.
      dtype: Of the result.

    Example:
      >>> normalize = Normalize(key="x", normalize_mean=0.5, normalize_std=0.5)
      >>> normalize.map({"x": np.array([0, 255], np.uint8)})["x"]
      array([-1.,  1.], dtype=float32)
    """

    in_vrange: tuple[float, float] = (0.0, 255.0)
    normalize_mean: Numbers = 0.0
    normalize_std: Numbers = 1.0
    dtype: DType = np.float32

    _numbers = ("normalize_mean", "normalize_std")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "in_vrange", tuple(self.in_vrange))
        object.__setattr__(self, "dtype", as_dtype(self.dtype))
        if not self.in_vrange[1] or not np.all(np.asarray(self.normalize_std)):
            raise ValueError(
                f"Normalize(in_vrange={self.in_vrange}, normalize_std="
                f"{self.normalize_std}): it divides by in_vrange[1] and by "
                "normalize_std, which must not be 0."
            )

    def _compute(self, array: Any) -> Any:
        scaled = cast(array, self.dtype) / self.dtype.type(self.in_vrange[1])
        mean = np.asarray(self.normalize_mean, self.dtype)
        return (scaled - mean) / np.asarray(self.normalize_std, self.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApplyW(_Arithmetic):
    """Multiplies each vector of a field `(..., n)` by a matrix: `w @ x`.

    Attributes:
      key: The field or fields.
      w: The matrix, `(n, n)`.

    Example:
      >>> apply = ApplyW(key="x", w=[[0, 1], [2, 0]])
      >>> apply.map({"x": np.array([[1, 2], [3, 4]])})["x"].tolist()
      [[2, 2], [4, 6]]
    """

    w: Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "w", _frozen(self.w))

    def _compute(self, array: Any) -> Any:
        return array @ _operand(self.w, array).T


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneMinus(_Arithmetic):
    """`1 - x`; for booleans the opposite.

    Attributes:
      key: The field or fields.
    """

    def _compute(self, array: Any) -> Any:
        kind = np.dtype(array.dtype).kind
        if kind == "b":
            return ~array
        return 1 - (cast(array, np.dtype(np.int64)) if kind == "u" else array)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Binarize(_Arithmetic):
    """One where the value exceeds a threshold, else zero, as int32.

    Attributes:
      key: The field or fields.
      threshold: The largest value that gives zero.
    """

    threshold: float

    def _compute(self, array: Any) -> Any:
        return cast(array > self.threshold, np.dtype(np.int32))


def _frozen(numbers: Any) -> Any:
    """Return the numbers in a form that has a hash: a number, or nested tuples."""
    return _tuples(np.asarray(numbers).tolist())


def _tuples(numbers: Any) -> Any:
    return tuple(map(_tuples, numbers)) if isinstance(numbers, list) else numbers


def _operand(numbers: Numbers, array: Any) -> Any:
    """Return the numbers, in the dtype of a field of floats so as not to widen it."""
    if not isinstance(numbers, tuple):
        return numbers
    return np.asarray(numbers, None if is_integer(array) else array.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VideoMAENormalization(ElementWiseTransform):
    """Gives each patch of a video zero mean and unit variance, channel by channel.

    What a masked autoencoder has to predict in Z. Tong et al., "VideoMAE: masked
    autoencoders are data-efficient learners for self-supervised video pre-training".

    Attributes:
      key: The field or fields, `(..., t, h, w, c)`.
      patch_size: Of a patch, `(t, h, w)`; must divide the sizes of the video.
      eps: Added to the standard deviation.
    """

    patch_size: tuple[int, int, int] = (2, 16, 16)
    eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "patch_size", tuple(self.patch_size))

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        sizes = dict(zip("abd", self.patch_size))
        split, together = "(t a) (h b) (w d) c", "t h w a b d c"
        video = cast(as_array(element), np.dtype(np.float32))
        patches = einops.rearrange(video, f"... {split} -> ... {together}", **sizes)
        mean = patches.mean((-4, -3, -2), keepdims=True)
        deviation = patches.std((-4, -3, -2), keepdims=True)
        patches = (patches - mean) / (deviation + self.eps)
        return einops.rearrange(patches, f"... {together} -> ... {split}")
