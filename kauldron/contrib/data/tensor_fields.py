"""Transforms written for NumPy, on TensorFlow tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kauldron.data.transforms.values import is_tf, tf


def takes_tensors(map_element: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Decorates a `map_element` of arrays: TensorFlow tensors go through NumPy.

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
