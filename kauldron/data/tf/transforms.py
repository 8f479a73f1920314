"""Transforms of tensors that only `tf.data` pipelines have."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from kauldron.data.transforms import resize as neutral
from kauldron.data.transforms.fields import ElementWiseTransform, KeyedFields
from kauldron.data.transforms.images import (
    InceptionCropOptions,
    as_crop_shape,
    crop_tensor,
)
from kauldron.data.transforms.values import as_dtype, round_and_cast, tf


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
        # One draw per axis, reduced to its room: fields that differ in the kept axes
        # only are cut at the same place.
        draws = tf.random.stateless_uniform(
            [len(self.shape)], seed, minval=0, maxval=2**31 - 1, dtype=tf.int32
        )
        return crop_tensor(element, self.shape, self, lambda room: draws % (room + 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class InceptionCrop(InceptionCropOptions, ElementWiseRandomTransform):
    """Cuts a random box out of images `(h, w, c)` and resizes it. The dtype stays.

    Attributes:
      key: The field or fields to crop, all alike.
      resize_size: The `(h, w)` of the result; `None` leaves the box as it is.
      resize_method: As in `kd.data.Resize`.
      area_range: Smallest and largest part of the area that the box covers.
    """

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
        return round_and_cast(resize.map_element(box), as_dtype(element.dtype))


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
        neutral.as_size((self.height, self.width), "height, width")
        object.__setattr__(self, "method", self._resize.method)

    @functools.cached_property
    def _resize(self) -> neutral.Resize:
        size = (self.height, self.width)
        return neutral.Resize(key=self.key, size=size, method=self.method)

    def map_element(self, element: Any) -> Any:
        return self._resize.map_element(element)
