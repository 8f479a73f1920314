"""Cut pieces out of arrays at random."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kauldron.data.transforms.array_family import as_array
from kauldron.data.transforms.crop_shape import as_crop_shape, check_crop_fits
from kauldron.data.transforms.element_wise import ElementWiseRandomTransform


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomCrop(ElementWiseRandomTransform):
    """Cuts a piece of the given shape out of an array of any rank, at a random place.

    Attributes:
      key: The field or fields to crop, all at the same place.
      shape: Size of the piece along each axis; `None` keeps the axis as it is.

    Example:
      >>> crop = RandomCrop(key=["image", "mask"], shape=(2, 2, None))
      >>> image = np.arange(9).reshape(3, 3, 1)
      >>> record = {"image": image, "mask": image > 3}
      >>> cropped = crop.random_map(record, np.random.default_rng(0))
      >>> cropped["image"].shape, bool(np.all((cropped["image"] > 3) == cropped["mask"]))
      ((2, 2, 1), True)
    """

    shape: Sequence[int | None]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", as_crop_shape(self.shape, self))

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        array = as_array(element)
        check_crop_fits(self.shape, array.shape, self)
        return array[self._draw(array.shape, rng)]

    def random_map_element_batch(
        self, elements: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> np.ndarray:
        arrays = as_array(elements)
        shape = arrays.shape[1:]
        check_crop_fits(self.shape, shape, self)
        new_shape = [
            size if target is None else target
            for target, size in zip(self.shape, shape)
        ]
        result = np.empty((len(arrays), *new_shape), arrays.dtype)
        for i, array in enumerate(arrays):
            result[i] = array[self._draw(shape, rngs[i])]
        return result

    def _draw(
        self, shape: tuple[int, ...], rng: np.random.Generator
    ) -> tuple[slice, ...]:
        slices = []
        for target, size in zip(self.shape, shape):
            if target is None or target >= size:
                slices.append(slice(None))
            else:
                start = int(rng.integers(0, size - target + 1))
                slices.append(slice(start, start + target))
        return tuple(slices)

    def check_fields(self, features: Mapping[str, Any], *, num_batch_axes: int) -> None:
        """Fields of different sizes would be cut at places that do not correspond."""
        if len(self._key_items) < 2:
            return
        shapes = {
            in_key: np.shape(value)[num_batch_axes:]
            for in_key, _, value in self.selected_fields(features)
        }
        cropped = {
            tuple(size for size, target in zip(shape, self.shape) if target is not None)
            for shape in shapes.values()
        }
        if len(cropped) > 1:
            raise ValueError(
                f"RandomCrop(shape={self.shape}): the fields have different sizes along"
                f" the cropped axes: {shapes}."
            )
