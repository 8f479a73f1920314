"""Mirror images at random."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from kauldron.data.transforms.array_family import as_array
from kauldron.data.transforms.element_wise import ElementWiseRandomTransform


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFlipLeftRight(ElementWiseRandomTransform):
    """Mirrors images `(..., h, w, c)` left to right, one coin per image.

    Attributes:
      key: The field or fields to flip, all alike.

    Example:
      >>> flip = RandomFlipLeftRight(key="image")
      >>> image = np.arange(3).reshape(1, 3, 1)
      >>> flip.random_map({"image": image}, np.random.default_rng(3))["image"].ravel()
      array([2, 1, 0])
    """

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        image = as_array(element)
        if len(image.shape) < 3:
            raise ValueError(
                "RandomFlipLeftRight expects (..., h, w, c), got shape"
                f" {tuple(image.shape)}; add a channel with"
                " kd.data.Rearrange(pattern='h w -> h w 1')."
            )
        keep = _draw_keep(image.shape[:-3], rng)
        return np.where(keep[..., None, None, None], image, image[..., ::-1, :])

    def random_map_element_batch(
        self, elements: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> np.ndarray:
        images = as_array(elements)
        if images.ndim < 4:  # the per-record form has the words for it
            return self.random_map_element(images[0], rngs[0])
        lead = images.shape[1:-3]
        flip = ~np.stack([_draw_keep(lead, rngs[i]) for i in range(len(images))])
        result = images.copy()
        result[flip] = images[flip][..., ::-1, :]
        return result


def _draw_keep(lead: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """One coin per image; the draws of `rng.integers(2, size=(*lead, 1, 1, 1), ...)`."""
    return np.asarray(rng.integers(2, size=lead or None, dtype=bool))
