"""Padding of images and sequences."""

from __future__ import annotations

import dataclasses
from typing import Any

from kauldron.contrib.data.image_arrays import as_images
from kauldron.contrib.data.tensor_fields import takes_tensors
from kauldron.data.transforms import ElementWiseTransform
from kauldron.data.transforms.values import array_module, as_array


@dataclasses.dataclass(frozen=True, kw_only=True)
class PadImage(ElementWiseTransform):
    """Pads images `(..., h, w, c)` on all four sides.

    Attributes:
      key: The field or fields.
      pad: Pixels on each side; or those above and below, and left and right, as
        `(vertical, horizontal)`.
      mode: As in `np.pad`: `"constant"` (zeros), `"edge"`, `"reflect"`, ...

    Example:
      >>> import numpy as np
      >>> PadImage(key="x", pad=(1, 2)).map({"x": np.zeros((4, 4, 3))})["x"].shape
      (6, 8, 3)
    """

    pad: int | tuple[int, int]
    mode: str = "constant"

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        pad = (self.pad,) * 2 if isinstance(self.pad, int) else tuple(self.pad)
        if len(pad) != 2 or not all(isinstance(p, int) and p >= 0 for p in pad):
            raise ValueError(
                f"{type(self).__name__}(pad={self.pad!r}): expected pixels, or pixels"
                " (vertical, horizontal), from 0 on."
            )
        object.__setattr__(self, "pad", pad)

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        return self._pad(as_images(element, self))

    def map_element_batch(self, elements: Any) -> Any:
        return self._pad(as_images(elements, self, num_batch_axes=1))

    def _pad(self, images: Any) -> Any:
        vertical, horizontal = self.pad  # pyright: ignore[reportGeneralTypeIssues]
        lead = [(0, 0)] * (len(images.shape) - 3)
        widths = [*lead, (vertical, vertical), (horizontal, horizontal), (0, 0)]
        return array_module(images).pad(images, widths, mode=self.mode)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PadImageEdgeVal(PadImage):
    """Pads images with the values at their edges.

    Attributes:
      key: The field or fields.
      pad: Pixels on each side, or `(vertical, horizontal)`.
    """

    mode: str = dataclasses.field(default="edge", init=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PadAxisToFixedSize(ElementWiseTransform):
    """Fills an axis up to a size.

    Attributes:
      key: The field or fields.
      size: Of the axis afterwards. A longer axis is an error.
      axis: Which one, of a record.
      value: What to fill with.

    Example:
      >>> PadAxisToFixedSize(key="x", size=4, axis=0).map({"x": [7, 8]})
      {'x': array([ 7,  8, -1, -1])}
    """

    size: int
    axis: int
    value: float = -1

    traceable = True

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        return self._pad(as_array(element), num_batch_axes=0)

    def map_element_batch(self, elements: Any) -> Any:
        return self._pad(as_array(elements), num_batch_axes=1)

    def _pad(self, array: Any, num_batch_axes: int) -> Any:
        shape = tuple(array.shape[num_batch_axes:])
        if not -len(shape) <= self.axis < len(shape):
            raise IndexError(f"PadAxisToFixedSize(axis={self.axis}): shape is {shape}.")
        axis = self.axis % len(shape)
        missing = self.size - shape[axis]
        if missing < 0:
            raise ValueError(
                f"PadAxisToFixedSize(size={self.size}, axis={self.axis}): the field is"
                f" longer, its shape is {shape}."
            )
        widths = [(0, 0)] * len(array.shape)
        widths[axis + num_batch_axes] = (0, missing)
        return array_module(array).pad(array, widths, constant_values=self.value)
