"""Masks: fields that say where another field counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron.contrib.data.arrays import takes_tensors
from kauldron.data.transforms import ElementWiseTransform
from kauldron.data.transforms.values import as_array, cast


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateMask(ElementWiseTransform):
    """Base of transforms that add a mask: float32, one where something holds, else zero.

    Sub-classes implement `map_element`, from the field that decides to the mask.

    Attributes:
      key: The field that decides; several get a mask each. A mapping goes from fields to
        the names of their masks.
      mask_key: Name of the mask, by default `<target_key>_mask`.
      target_key: The field that the mask is for, by default the one that decides.
    """

    mask_key: str | None = None
    target_key: str | None = None

    def __post_init__(self) -> None:
        mask = self.mask_key or (self.target_key and f"{self.target_key}_mask")
        fields = [self.key] if isinstance(self.key, str) else [*self.key]
        if mask and len(fields) > 1:
            raise ValueError(
                f"{type(self).__name__}: several fields cannot share the mask {mask!r};"
                " give a mapping from fields to masks as the key."
            )
        if mask or not isinstance(self.key, Mapping):
            masks = {field: mask or f"{field}_mask" for field in fields}
            object.__setattr__(self, "key", masks)
        super().__post_init__()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateRangeMask(CreateMask):
    """Masks values within a range, both ends included.

    Attributes:
      key: The field that decides.
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

    def map_element(self, element: Any) -> Any:
        array = as_array(element)
        return _as_mask((array >= self.min_value) & (array <= self.max_value))

    map_element_batch = map_element


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateNonEqualMask(CreateMask):
    """Masks with one where the field **equals** a value, in spite of the name.

    Attributes:
      key: The field that decides.
      mask_value: The value.
    """

    mask_value: float

    traceable = True

    def map_element(self, element: Any) -> Any:
        return _as_mask(as_array(element) == self.mask_value)

    map_element_batch = map_element


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateMeshGridMask(CreateMask):
    """Masks the cells of a grid that lie within the sizes in a field.

    Attributes:
      key: The field with the sizes, one per axis of the grid.
      shape: Of the grid.

    Example:
      >>> mask = CreateMeshGridMask(key="size", target_key="image", shape=(2, 3))
      >>> mask.map({"size": [1, 2]})["image_mask"]
      array([[1., 1., 0.],
             [0., 0., 0.]], dtype=float32)
    """

    shape: tuple[int, ...]

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", tuple(self.shape))

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        return self._mask(as_array(element), num_batch_axes=0)

    def map_element_batch(self, elements: Any) -> Any:
        return self._mask(as_array(elements), num_batch_axes=1)

    def _mask(self, sizes: Any, num_batch_axes: int) -> Any:
        lead, shape = sizes.shape[:num_batch_axes], tuple(sizes.shape[num_batch_axes:])
        rank = len(self.shape)
        if shape != (rank,):
            raise ValueError(
                f"CreateMeshGridMask(shape={self.shape}): expected a field with {rank}"
                f" sizes, got shape {shape}."
            )
        cells = np.moveaxis(np.indices(self.shape), 0, -1)
        return _as_mask((cells < sizes.reshape(*lead, *[1] * rank, rank)).all(-1))


def _as_mask(is_valid: Any) -> Any:
    return cast(is_valid, np.dtype(np.float32))
