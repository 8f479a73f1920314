"""Masks: fields that say where another field counts."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron.contrib.data.arrays import takes_tensors
from kauldron.data.transforms import ElementWiseTransform
from kauldron.data.transforms.values import as_array, as_images, cast, is_tf, tf

_FLOAT = np.dtype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateMask(ElementWiseTransform):
    """Base of transforms that add a mask: float32, one where something holds, else zero.

    Sub-classes implement `condition`, from the field that decides (as float32) to bools.

    Attributes:
      key: The field that the mask is for; several get a mask each. A mapping goes from
        the fields that decide to the names of their masks.
      mask_key: The field that decides, by default `key`.
      target_key: The mask is called `<target_key>_mask`; by default `<key>_mask`.
    """

    mask_key: str | None = None
    target_key: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.key, Mapping):
            fields = [self.key] if isinstance(self.key, str) else [*self.key]
            if len(fields) > 1 and (self.mask_key or self.target_key):
                raise ValueError(
                    f"{type(self).__name__}: mask_key and target_key are about one"
                    f" field, but the key is {fields}; give a mapping from the fields"
                    " that decide to the masks as the key."
                )
            masks = {self.mask_key or f: f"{self.target_key or f}_mask" for f in fields}
            object.__setattr__(self, "key", masks)
        super().__post_init__()

    @abc.abstractmethod
    def condition(self, tensor: Any) -> Any:
        """Return where the mask is one."""

    def map_element(self, element: Any) -> Any:
        return cast(self.condition(cast(as_array(element), _FLOAT)), _FLOAT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateRangeMask(CreateMask):
    """Masks values within a range, both ends included.

    Attributes:
      key: The field that the mask is for, as in `CreateMask`.
      min_value: The smallest valid value.
      max_value: The largest valid value.

    Example:
      >>> mask = CreateRangeMask(key="depth", min_value=1, max_value=2)
      >>> mask.map({"depth": [0, 1, 2, 3]})["depth_mask"]
      array([0., 1., 1., 0.], dtype=float32)
    """

    min_value: float
    max_value: float

    traceable = True
    map_element_batch = CreateMask.map_element

    def condition(self, tensor: Any) -> Any:
        return (tensor >= self.min_value) & (tensor <= self.max_value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateNonEqualMask(CreateMask):
    """Masks with one where the field **equals** a value, in spite of the name.

    Attributes:
      key: The field that the mask is for, as in `CreateMask`.
      mask_value: The value.
    """

    mask_value: float

    traceable = True
    map_element_batch = CreateMask.map_element

    def condition(self, tensor: Any) -> Any:
        if is_tf(tensor):  # in a graph of TensorFlow 1, `==` compares the objects
            return tf.equal(tensor, self.mask_value)
        return tensor == self.mask_value


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateMeshGridMask(CreateMask):
    """Adds the coordinates of the pixels of an image, to be cropped along with it.

    The result has the shape `(1, h, w, 2)`; the entry `[0, y, x]` is `(x, y)`.

    Attributes:
      key: The field with the image `(..., h, w, c)`, as in `CreateMask`.
      shape: If given, the field holds one size per axis instead of an image, and the
        mask is a grid of this shape: one for the cells that lie within these sizes.

    Example:
      >>> grid = CreateMeshGridMask(key="x").map({"x": np.zeros((2, 3, 1))})["x_mask"]
      >>> grid[0, 1].tolist()
      [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
    """

    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(self.shape))

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        return CreateMask.map_element(self, element)

    def condition(self, tensor: Any) -> Any:
        if self.shape is not None:
            if tensor.shape != (len(self.shape),):
                raise ValueError(
                    f"CreateMeshGridMask(shape={self.shape}): expected a field with"
                    f" {len(self.shape)} sizes, got shape {tensor.shape}."
                )
            return (np.moveaxis(np.indices(self.shape), 0, -1) < tensor).all(-1)
        height, width = as_images(tensor, self).shape[-3:-1]
        return np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)[None]
