"""Fields that hold images."""

from __future__ import annotations

from typing import Any

from kauldron.data.transforms.values import as_array


def as_images(element: Any, transform: Any, *, num_batch_axes: int = 0) -> Any:
    """The field as an array `(..., h, w, c)`.

    Args:
      element: The field, or a column of it.
      transform: Who asks, for the message.
      num_batch_axes: 1 for a column.

    Raises:
      ValueError: It has too few axes.
    """
    images = as_array(element)
    shape = tuple(images.shape[num_batch_axes:])
    if len(shape) < 3:
        raise ValueError(
            f"{type(transform).__name__} expects (..., h, w, c), got shape {shape}; add"
            " a channel with kd.data.Rearrange(pattern='h w -> h w 1')."
        )
    return images
