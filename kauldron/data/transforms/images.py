"""Crops and flips of images and other arrays, centred or random."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kauldron.data.transforms import pillow_images
from kauldron.data.transforms.fields import (
    ElementWiseRandomTransform,
    ElementWiseTransform,
    KeyedFields,
)
from kauldron.data.transforms.resize import as_method, as_size, resize
from kauldron.data.transforms.values import (
    as_array,
    as_images,
    is_tf,
    round_and_cast,
    tf,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CenterCrop(ElementWiseTransform):
    """Cuts the middle out of an array of any rank.

    Attributes:
      key: The field or fields to crop.
      shape: Size of the result along each axis; `None` keeps the axis as it is.

    Example:
      >>> import numpy as np
      >>> crop = CenterCrop(key="image", shape=(2, 2, None))
      >>> crop.map({"image": np.zeros((5, 4, 3))})["image"].shape
      (2, 2, 3)
    """

    shape: Sequence[int | None]

    traceable = True
    takes_encoded_images = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", as_crop_shape(self.shape, self))

    def map_element(self, element: Any) -> Any:
        array = _as_image(element)
        if is_tf(array):
            return crop_tensor(array, self.shape, self, lambda room: room // 2)
        return array[self._slices(array.shape)]

    def map_element_batch(self, elements: Any) -> Any:
        array = as_array(elements)
        return array[:, *self._slices(array.shape[1:])]

    def _slices(self, shape: tuple[int, ...]) -> tuple[slice, ...]:
        check_crop_fits(self.shape, shape, self)
        return tuple(
            slice(None) if target is None else _middle(size, target)
            for target, size in zip(self.shape, shape)
        )


def _middle(size: int, target: int) -> slice:
    start = (size - target) // 2
    return slice(start, start + target)


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

    takes_encoded_images = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", as_crop_shape(self.shape, self))

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        array = _as_image(element)
        check_crop_fits(self.shape, array.shape, self)
        return array[self._draw(array.shape, rng)]

    def random_map_element_batch(
        self, elements: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> np.ndarray:
        arrays = as_array(elements)
        check_crop_fits(self.shape, arrays.shape[1:], self)
        pieces = [
            array[self._draw(array.shape, rngs[i])] for i, array in enumerate(arrays)
        ]
        return np.stack(pieces)

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


_ASPECT_RATIOS = (3 / 4, 4 / 3)
_MAX_ATTEMPTS = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class InceptionCropOptions(KeyedFields):
    """The options of `InceptionCrop`, for arrays as for tensors."""

    resize_size: tuple[int, int] | None = None
    resize_method: str = "bilinear"
    area_range: tuple[float, float] = (0.05, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize_size is not None:
            size = as_size(self.resize_size, "resize_size")
            object.__setattr__(self, "resize_size", size)
        method = as_method(self.resize_method)
        object.__setattr__(self, "resize_method", method)
        object.__setattr__(self, "area_range", _as_area_range(self.area_range))


def _as_area_range(area_range: Any) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in area_range)
    except (TypeError, ValueError):
        low = high = 0.0
    if not 0 < low <= high <= 1:
        raise ValueError(
            f"InceptionCrop(area_range={area_range!r}): expected two parts of the area,"
            " 0 < low <= high <= 1."
        )
    return low, high


@dataclasses.dataclass(frozen=True, kw_only=True)
class InceptionCrop(InceptionCropOptions, ElementWiseRandomTransform):
    """Cuts a random box out of images `(..., h, w, c)` and resizes it.

    The box covers a random part of the area and has an aspect ratio between 3/4 and
    4/3, as in C. Szegedy et al., "Going deeper with convolutions". The dtype stays.

    Pillow resizes `uint8` images where the method is `bilinear`, to within one level of
    what `Resize` computes. The first transform of a `kd.data.py.ImageFolder` gets the
    pixels straight from the file. A JPEG whose box is four times as large as the result,
    or larger, is decoded at a fraction of its size then.

    Attributes:
      key: The field or fields to crop, all alike when they have the same size.
      resize_size: The `(h, w)` of the result; `None` leaves the box as it is.
      resize_method: As in `Resize`.
      area_range: Smallest and largest part of the area that the box covers.

    Example:
      >>> crop = InceptionCrop(key="image", resize_size=(8, 8))
      >>> record = {"image": np.zeros((32, 24, 3), np.uint8)}
      >>> crop.random_map(record, np.random.default_rng(0))["image"].shape
      (8, 8, 3)
    """

    takes_encoded_images = True

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        is_file = isinstance(element, pillow_images.EncodedImage)
        image = element if is_file else as_images(element, self)
        rows, columns = self._draw_box(image.shape[-3], image.shape[-2], rng)
        size, method = self.resize_size, self.resize_method
        if size is not None and pillow_images.can_resize(image, method):
            return pillow_images.resized(
                image, rows, columns, size, user="InceptionCrop"
            )
        box = image[..., rows, columns, :]
        if size is None:
            return box
        return round_and_cast(resize(box, size, method), np.dtype(image.dtype))

    def _draw_box(
        self, height: int, width: int, rng: np.random.Generator
    ) -> tuple[slice, slice]:
        """Return a random box that fits; the whole image when none was found."""
        low, high = self.area_range
        for _ in range(_MAX_ATTEMPTS):
            area = rng.uniform(low, high) * height * width
            ratio = rng.uniform(*_ASPECT_RATIOS)
            box_width = round(math.sqrt(area * ratio))
            box_height = round(math.sqrt(area / ratio))
            if 0 < box_width <= width and 0 < box_height <= height:
                top = int(rng.integers(0, height - box_height + 1))
                left = int(rng.integers(0, width - box_width + 1))
                return slice(top, top + box_height), slice(left, left + box_width)
        return slice(None), slice(None)


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
        image = as_images(element, self)
        keep = _draw_keep(image.shape[:-3], rng)
        return image if keep.all() else _mirrored(np.asarray(image), ~keep)

    def random_map_element_batch(
        self, elements: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> np.ndarray:
        images = as_images(elements, self, num_batch_axes=1)
        lead = images.shape[1:-3]
        flip = ~np.stack([_draw_keep(lead, rngs[i]) for i in range(len(images))])
        return _mirrored(np.asarray(images), flip)


def _mirrored(images: np.ndarray, flip: np.ndarray) -> np.ndarray:
    """Return a copy of `(*lead, h, w, c)`, reversed along w where `flip[*lead]`."""
    result = np.empty_like(images, order="C", subok=False)
    channels = range(images.shape[-1])
    for index in np.ndindex(flip.shape):
        if not flip[index]:
            result[index] = images[index]
        elif len(channels) > _MAX_CHANNELS_APART:
            result[index] = images[index][:, ::-1]
        else:  # numpy copies short rows of channels slowly
            for c in channels:
                result[index][..., c] = images[index][:, ::-1, c]
    return result


_MAX_CHANNELS_APART = 4


def _as_image(element: Any) -> Any:
    """As `as_array`; files are left as they are."""
    is_file = isinstance(element, pillow_images.EncodedImage)
    return element if is_file else as_array(element)


def _draw_keep(lead: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw one coin per image, as `rng.integers(2, size=(*lead, 1, 1, 1))` does."""
    return np.asarray(rng.integers(2, size=lead or None, dtype=bool))


# ----------------------------------------------------------------------------
# Arguments, and crops of tensors
# ----------------------------------------------------------------------------


def as_crop_shape(shape: Any, owner: Any) -> tuple[int | None, ...]:
    """Return the shape as a tuple of sizes and `None`."""
    name = f"{type(owner).__name__}(shape={shape!r})"
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise TypeError(f"{name}: expected one size (or None) per axis.")
    try:
        sizes = tuple(None if size is None else operator.index(size) for size in shape)
    except TypeError:
        raise TypeError(f"{name}: sizes are ints or None.") from None
    if any(size is not None and size < 0 for size in sizes):
        raise ValueError(f"{name}: a size is negative.")
    return sizes


def check_crop_fits(
    target: Sequence[int | None], shape: Sequence[int], owner: Any
) -> None:
    """Raise `ValueError` unless the crop has the rank of the array and fits into it."""
    if len(target) != len(shape):
        problem = f"has {len(target)} axes, but the field has shape {tuple(shape)}."
    elif any(size is not None and size > full for size, full in zip(target, shape)):
        problem = f"is larger than the field of shape {tuple(shape)}."
    else:
        return
    raise ValueError(f"{type(owner).__name__}(shape={tuple(target)}) {problem}")


def crop_tensor(
    tensor: Any, target: Sequence[int | None], owner: Any, place: Callable[[Any], Any]
) -> Any:
    """Cut a piece out of a tensor; `place` turns the room along each axis into starts.

    Where a size is not known yet, the graph fails if it is too small.
    """
    known = list(tensor.shape)
    if len(known) == len(target):
        known = [
            want or 0 if size is None else size for size, want in zip(known, target)
        ]
    check_crop_fits(target, known, owner)
    sizes = tf.shape(tensor)
    wanted = tf.stack(
        [sizes[axis] if size is None else size for axis, size in enumerate(target)]
    )
    cropped = tf.slice(tensor, place(sizes - wanted), wanted)
    new_shape = [
        size if want is None else want for size, want in zip(tensor.shape, target)
    ]
    return tf.ensure_shape(cropped, new_shape)
