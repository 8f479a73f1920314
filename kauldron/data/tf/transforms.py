"""Transforms of tensors that only `tf.data` pipelines have."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kauldron.data.transforms import resize as neutral
from kauldron.data.transforms.fields import ElementWiseTransform, KeyedFields
from kauldron.data.transforms.images import (
    as_area_range,
    as_crop_shape,
    check_tensor_crop,
    tensor_crop_sizes,
    with_crop_shape,
)
from kauldron.data.transforms.values import round_and_cast, tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementWiseRandomTransform(KeyedFields, abc.ABC):
    """Applies `random_map_element` to the selected fields, with one seed for all.

    Attributes:
      key: The field or fields to transform, or a mapping from fields to read to fields
        to write.
    """

    __kd_data_backend__ = "tf"

    @abc.abstractmethod
    def random_map_element(self, element: Any, seed: Any) -> Any:
        """Return the new value of one field.

        Args:
          element: A tensor.
          seed: An `int32[2]` tensor for the stateless random functions of TensorFlow.
        """

    def random_map(self, features: Mapping[str, Any], seed: Any) -> dict[str, Any]:
        return self.map_fields(
            features, lambda element: self.random_map_element(element, seed)
        )

    def __call__(self, features: Mapping[str, Any], seed: Any) -> dict[str, Any]:
        return self.random_map(features, seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFlipLeftRight(ElementWiseRandomTransform):
    """Mirrors images `(..., h, w, c)` left to right, one coin per image.

    Attributes:
      key: The field or fields to flip, all alike.
    """

    def random_map_element(self, element: Any, seed: Any) -> Any:
        lead = tf.concat([tf.shape(element)[:-3], [1, 1, 1]], axis=0)
        keep = tf.random.stateless_uniform(lead, seed) < 0.5
        return tf.where(keep, element, tf.reverse(element, axis=[-2]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomCrop(ElementWiseRandomTransform):
    """Cuts a piece of the given shape out of a tensor, at a random place.

    Attributes:
      key: The field or fields to crop, all at the same place.
      shape: Size of the piece along each axis; `None` keeps the axis as it is.
    """

    shape: Sequence[int | None]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", as_crop_shape(self.shape, self))

    def random_map_element(self, element: Any, seed: Any) -> Any:
        check_tensor_crop(element, self.shape, self)
        sizes = tf.shape(element)
        wanted = tensor_crop_sizes(element, self.shape)
        room = sizes - wanted + 1
        # One draw per axis, reduced to its room: fields that differ in the kept axes
        # only are cut at the same place.
        draws = tf.random.stateless_uniform(
            tf.shape(sizes), seed, minval=0, maxval=2**31 - 1, dtype=tf.int32
        )
        cropped = tf.slice(element, draws % room, wanted)
        return with_crop_shape(cropped, element, self.shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InceptionCrop(ElementWiseRandomTransform):
    """Cuts a random box out of images `(h, w, c)` and resizes it. The dtype stays.

    Attributes:
      key: The field or fields to crop, all alike.
      resize_size: The `(h, w)` of the result; `None` leaves the box as it is.
      resize_method: As in `kd.data.Resize`.
      area_range: Smallest and largest part of the area that the box covers.
    """

    resize_size: tuple[int, int] | None = None
    resize_method: str = "bilinear"
    area_range: tuple[float, float] = (0.05, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize_size is not None:
            size = neutral.as_size(self.resize_size, "resize_size")
            object.__setattr__(self, "resize_size", size)
        method = neutral.as_method(self.resize_method)
        object.__setattr__(self, "resize_method", method)
        object.__setattr__(self, "area_range", as_area_range(self.area_range))

    def random_map_element(self, element: Any, seed: Any) -> Any:
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.shape(element),
            tf.zeros([0, 0, 4], tf.float32),
            seed,
            area_range=self.area_range,
            min_object_covered=0,
            use_image_if_no_bounding_boxes=True,
        )
        box = tf.slice(element, begin, size)
        box = tf.ensure_shape(box, [None, None, element.shape[-1]])
        if self.resize_size is None:
            return box
        resize = neutral.Resize(
            key="box", size=self.resize_size, method=self.resize_method
        )
        dtype = np.dtype(element.dtype.as_numpy_dtype)
        return round_and_cast(resize.map_element(box), dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resize(ElementWiseTransform):
    """Resizes images `(..., h, w, c)`.

    Attributes:
      key: The field or fields to resize.
      height: Of the result.
      width: Of the result.
      method: As in `kd.data.Resize`, or `"AUTO"`: `nearest` for integers, `area` for
        floats.
    """

    height: int
    width: int
    method: str = "AUTO"

    __kd_data_backend__ = "tf"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "method", self._resize.method)

    @functools.cached_property
    def _resize(self) -> neutral.Resize:
        size = (self.height, self.width)
        return neutral.Resize(key=self.key, size=size, method=self.method)

    def map_element(self, element: Any) -> Any:
        return self._resize.map_element(element)
