"""Images chosen by a predicate, anywhere in a record."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from kauldron.contrib.data import padding
from kauldron.contrib.data.image_arrays import as_images
from kauldron.contrib.data.predicates import ElementWiseTransformWithPredicate
from kauldron.data import transforms
from kauldron.data.transforms.values import DType


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlipUpsideDown(ElementWiseTransformWithPredicate):
    """Turns images `(..., h, w, c)` upside down.

    Attributes:
      should_transform_pred: Which leaves; by default those whose name says image.
    """

    def map_element(self, element: Any) -> Any:
        return as_images(element, self)[..., ::-1, :, :]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LikeKeyed(ElementWiseTransformWithPredicate):
    """Does to the chosen leaves what another transform does to the fields it names."""

    _keyed_type: ClassVar[type[transforms.ElementWiseTransform]]
    _keyed: ClassVar[transforms.ElementWiseTransform]  # of this type and our arguments

    def __post_init__(self) -> None:
        arguments = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "should_transform_pred"
        }
        keyed = self._keyed_type(key="image", **arguments)
        object.__setattr__(self, "_keyed", keyed)

    def map_element(self, element: Any) -> Any:
        return self._keyed.map_element(element)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PadImage(_LikeKeyed):
    """Pads images `(..., h, w, c)`, as `kd.contrib.data.PadImage`.

    Attributes:
      should_transform_pred: Which leaves; by default those whose name says image.
      pad: Pixels on each side, or `(vertical, horizontal)`.
      mode: As in `np.pad`.
    """

    pad: int | tuple[int, int]
    mode: str = "constant"

    _keyed_type = padding.PadImage


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueRange(_LikeKeyed):
    """Maps `in_vrange` linearly to `vrange`, as `kd.data.ValueRange`.

    Attributes:
      should_transform_pred: Which leaves; by default those whose name says image.
      vrange: Range of the result.
      in_vrange: Range of the input.
      dtype: Of the result.
      clip_values: Whether values outside `in_vrange` end at the border of `vrange`.
    """

    vrange: tuple[float, float]
    in_vrange: tuple[float, float] = (0.0, 255.0)
    dtype: DType = np.float32
    clip_values: bool = True

    _keyed_type = transforms.ValueRange


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resize(_LikeKeyed):
    """Resizes images `(..., h, w, c)`, as `kd.data.Resize`.

    Attributes:
      should_transform_pred: Which leaves; by default those whose name says image.
      size: The new `(h, w)`.
      min_size: The new size of the shorter edge.
      max_size: The new size of the longer edge.
      method: Such as `"bilinear"`.
      antialias: Whether to filter when shrinking.

    Example:
      >>> record = {"left": {"rgb": np.zeros((8, 8, 3))}, "depth": np.zeros((8, 8, 1))}
      >>> smaller = Resize(size=(4, 4)).map(record)
      >>> smaller["left"]["rgb"].shape, smaller["depth"].shape
      ((4, 4, 3), (8, 8, 1))
    """

    size: tuple[int, int] | None = None
    min_size: int | None = None
    max_size: int | None = None
    method: str | None = None
    antialias: bool = True

    _keyed_type = transforms.Resize
