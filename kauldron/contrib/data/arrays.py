"""Arrays as transforms get them: TensorFlow tensors through NumPy, images with channels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kauldron.data.transforms.values import as_array, is_tf, tf


def takes_tensors(map_element: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Decorate a `map_element` of arrays: TensorFlow tensors go through NumPy.

    In a `tf.data` pipeline their shape must be known.
    """

    @functools.wraps(map_element)
    def map_any_element(self: Any, element: Any) -> Any:
        if not is_tf(element):
            return map_element(self, element)
        return _through_numpy(functools.partial(map_element, self), element, self)

    return map_any_element


def _through_numpy(function: Callable[[Any], Any], tensor: Any, transform: Any) -> Any:
    if hasattr(tensor, "numpy"):  # outside of a graph
        return tf.convert_to_tensor(function(tensor.numpy()))
    if not tensor.shape.is_fully_defined():
        raise ValueError(
            f"{type(transform).__name__} needs tensors whose shape is known when the"
            f" pipeline is built, got {tensor.shape}; call tf.ensure_shape before."
        )
    example = function(np.zeros(tensor.shape, tensor.dtype.as_numpy_dtype))
    result = tf.numpy_function(function, [tensor], tf.as_dtype(example.dtype))
    return tf.ensure_shape(result, example.shape)


def as_images(element: Any, transform: Any, *, num_batch_axes: int = 0) -> Any:
    """Return the field as an array `(..., h, w, c)`.

    Args:
      element: The field, or a column of it.
      transform: The transform that asks, for the message.
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
