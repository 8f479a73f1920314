"""The entries of a field side by side, or one below the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from kauldron.contrib.data.tensor_fields import takes_tensors
from kauldron.data.transforms import ElementWiseTransform
from kauldron.data.transforms.values import array_module, as_array


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Stack(ElementWiseTransform):
    """Concatenates the entries of the first axis along one of their own axes."""

    _min_rank: ClassVar[int]  # smaller entries get axes in front
    traceable = True

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        parts = [as_array(part) for part in element]
        if not parts:
            raise ValueError(f"{type(self).__name__}: there is nothing to join.")
        return self._join(parts, num_batch_axes=0)

    def map_element_batch(self, elements: Any) -> Any:
        elements = as_array(elements)
        if len(elements.shape) < 2 or not elements.shape[1]:
            return self.map_element(elements[0])  # has the words for it
        parts = [elements[:, i] for i in range(elements.shape[1])]
        return self._join(parts, num_batch_axes=1)

    def _join(self, parts: Sequence[Any], num_batch_axes: int) -> Any:
        lifted = []
        for part in parts:
            lead, shape = part.shape[:num_batch_axes], part.shape[num_batch_axes:]
            ones = (1,) * (self._min_rank - len(shape))
            lifted.append(part.reshape(*lead, *ones, *shape))
        axis = self._axis(lifted[0].ndim - num_batch_axes)
        return array_module(parts[0]).concatenate(lifted, axis=num_batch_axes + axis)

    def _axis(self, rank: int) -> int:
        del rank
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class HStack(_Stack):
    """The entries of a field side by side, as `np.hstack` of them.

    Attributes:
      key: The field or fields: lists of arrays, or arrays with the entries first.

    Example:
      >>> import numpy as np
      >>> HStack(key="frames").map({"frames": np.zeros((5, 4, 6, 3))})["frames"].shape
      (4, 30, 3)
    """

    _min_rank = 1

    def _axis(self, rank: int) -> int:
        return min(rank - 1, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VStack(_Stack):
    """The entries of a field one below the other, as `np.vstack` of them.

    Attributes:
      key: The field or fields: lists of arrays, or arrays with the entries first.

    Example:
      >>> import numpy as np
      >>> VStack(key="frames").map({"frames": np.zeros((5, 4, 6, 3))})["frames"].shape
      (20, 6, 3)
    """

    _min_rank = 2
