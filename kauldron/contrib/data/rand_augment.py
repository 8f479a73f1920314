"""RandAugment: a few random operations on each image.

References:
  Cubuk et al., RandAugment: practical automated data augmentation with a reduced search
  space (2020).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kauldron.contrib.data.arrays import takes_tensor_fields
from kauldron.data.transforms import RandomMapTransform
from kauldron.data.transforms.fields import check_has_fields
from kauldron.data.transforms.values import as_array
from kauldron.errors import did_you_mean

_GREY = 128  # fills what lies outside of the image


@takes_tensor_fields("image_key", "boxes_key", keeps_shapes=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandAugment(RandomMapTransform):
    """Applies random operations of a given strength to an image.

    Each layer draws one of the operations, or none, all equally likely.

    Attributes:
      image_key: The field with the image, uint8 `(h, w, 3)`.
      boxes_key: A field with boxes that move along, `(n, 4)`: `y_min, x_min, y_max,
        x_max` relative to the image.
      num_layers: How many operations, one after the other.
      magnitude: Their strength; 10 is strong, and more is possible.
      cutout_const: Half the edge, in pixels, of what is cut out at magnitude 10.
      translate_const: By how many pixels the image is moved at magnitude 10.
      magnitude_std: Standard deviation of the strength from layer to layer.
      prob_to_apply: Probability of each layer; `None` for always.
      exclude_ops: Names of operations that are left out.

    Example:
      >>> augment = RandAugment(image_key="image", num_layers=1)
      >>> image = np.zeros((4, 4, 3), np.uint8)
      >>> augment({"image": image, "y": 1}, np.random.default_rng(0))["image"].shape
      (4, 4, 3)
    """

    image_key: str
    boxes_key: str | None = None
    num_layers: int = 2
    magnitude: float = 10
    cutout_const: float = 40.0
    translate_const: float = 100.0
    magnitude_std: float = 0.0
    prob_to_apply: float | None = None
    exclude_ops: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.exclude_ops is not None:
            object.__setattr__(self, "exclude_ops", tuple(self.exclude_ops))
            for name in self.exclude_ops:
                if name not in OPERATIONS:
                    raise ValueError(
                        f"RandAugment(exclude_ops=...): there is no operation {name!r}."
                        f"{did_you_mean(name, OPERATIONS)}"
                    )

    def random_map(
        self, element: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
        names = [name for name in (self.image_key, self.boxes_key) if name is not None]
        check_has_fields(element, names, self)
        image, *boxes = (as_array(element[name]) for name in names)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3:
            raise ValueError(
                "RandAugment expects a uint8 image (h, w, 3), got"
                f" {image.dtype} {image.shape}."
            )
        excluded = self.exclude_ops or ()
        choices = [name for name in OPERATIONS if name not in excluded]
        for _ in range(self.num_layers):
            number = rng.integers(len(choices) + 1)
            strength = rng.normal(self.magnitude, self.magnitude_std)
            strength = np.clip(strength, 0, max(10, self.magnitude)) / 10
            is_applied = self.prob_to_apply is None or rng.random() < self.prob_to_apply
            if number < len(choices) and is_applied:
                image, boxes = self.apply(choices[number], image, boxes, strength, rng)
        return {**element, **dict(zip(names, [image, *boxes]))}

    def apply(
        self,
        name: str,
        image: np.ndarray,
        boxes: Sequence[np.ndarray],
        strength: float,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, Sequence[np.ndarray]]:
        """Apply one operation to an image and to boxes in it."""
        result = OPERATIONS[name](self, image, strength, rng)
        if isinstance(result, np.ndarray):
            return result, boxes
        return result.of_image(image), [result.of_boxes(b, image.shape) for b in boxes]


#
# Operations that move pixels
#


@dataclasses.dataclass(frozen=True)
class Movement:
    """An output pixel `p = (x, y)` is the input pixel `matrix @ p + offset`.

    With `is_centred`, the offset keeps the centre of the image in its place.
    """

    matrix: np.ndarray
    offset: tuple[float, float] = (0.0, 0.0)
    is_centred: bool = False

    def of_image(self, image: np.ndarray) -> np.ndarray:
        """Return the image with each pixel taken from the nearest one."""
        height, width = image.shape[:2]
        offset = np.array(self.offset)
        if self.is_centred:
            last = np.array([width - 1, height - 1])
            offset = (last - self.matrix @ last) / 2
        rows, columns = np.indices((height, width))
        places = np.stack([columns, rows], axis=-1) @ self.matrix.T + offset
        places = places.round(9)  # a half is a half
        places = (np.sign(places) * np.floor(np.abs(places) + 0.5)).astype(np.int64)
        x, y = places[..., 0], places[..., 1]
        is_inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        moved = image[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
        return np.where(is_inside[..., None], moved, np.uint8(_GREY))

    def of_boxes(self, boxes: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Return the boxes around what was in the boxes."""
        size = np.array([shape[1], shape[0]])
        centre = 0.5 if self.is_centred else 0.0
        y_min, x_min, y_max, x_max = np.moveaxis(np.asarray(boxes, np.float64), -1, 0)
        corners = [(x, y) for x in (x_min, x_max) for y in (y_min, y_max)]
        pixels = size * (np.moveaxis(np.array(corners), 1, -1) - centre)
        pixels = np.trunc(pixels.round(4))  # 0.7 of 10 pixels is 7, not 6.9999998
        moved = (pixels - self.offset) @ np.linalg.inv(self.matrix).T
        moved = moved.round(9) / size + centre
        low, high = (np.clip(end, 0, 1) for end in (moved.min(0), moved.max(0)))
        is_empty = high <= low
        low = np.where(is_empty, np.minimum(low, 0.95), low)
        high = np.where(is_empty, np.maximum(high, 0.05), high)
        ends = [low[:, 1], low[:, 0], high[:, 1], high[:, 0]]
        return np.stack(ends, axis=-1).astype(boxes.dtype)


def _rotate(transform: RandAugment, image: Any, m: float, rng: Any) -> Movement:
    angle = math.radians(_either_way(30 * m, rng))
    cos, sin = math.cos(angle), math.sin(angle)
    return Movement(np.array([[cos, -sin], [sin, cos]]), is_centred=True)


def _shear_x(transform: RandAugment, image: Any, m: float, rng: Any) -> Movement:
    return Movement(np.array([[1, _either_way(0.3 * m, rng)], [0, 1]]))


def _shear_y(transform: RandAugment, image: Any, m: float, rng: Any) -> Movement:
    return Movement(np.array([[1, 0], [_either_way(0.3 * m, rng), 1]]))


def _translate_x(transform: RandAugment, image: Any, m: float, rng: Any) -> Movement:
    pixels = _either_way(transform.translate_const * m, rng)
    return Movement(np.eye(2), offset=(pixels, 0))


def _translate_y(transform: RandAugment, image: Any, m: float, rng: Any) -> Movement:
    pixels = _either_way(transform.translate_const * m, rng)
    return Movement(np.eye(2), offset=(0, pixels))


def _either_way(value: float, rng: np.random.Generator) -> float:
    return value if rng.integers(2) else -value


#
# Operations that change colours
#


def _auto_contrast(transform: Any, image: np.ndarray, m: float, rng: Any) -> np.ndarray:
    low, high = (
        end.astype(np.float64) for end in (image.min((0, 1)), image.max((0, 1)))
    )
    stretched = (image - low) * 255 / np.where(high > low, high - low, 1)
    return np.where(high > low, np.clip(stretched, 0, 255), image).astype(np.uint8)


def _equalize(transform: Any, image: np.ndarray, m: float, rng: Any) -> np.ndarray:
    channels = [_equalize_channel(channel) for channel in np.moveaxis(image, -1, 0)]
    return np.stack(channels, axis=-1)


def _equalize_channel(channel: np.ndarray) -> np.ndarray:
    counts = np.bincount(channel.ravel(), minlength=256)
    step = (channel.size - counts[counts > 0][-1]) // 255
    if step == 0:
        return channel
    below = np.cumsum(counts) - counts
    table = np.clip((below + step // 2) // step, 0, 255)
    table[0] = 0
    return table.astype(np.uint8)[channel]


def _invert(transform: Any, image: np.ndarray, m: float, rng: Any) -> np.ndarray:
    return 255 - image


def _posterize(transform: Any, image: np.ndarray, m: float, rng: Any) -> np.ndarray:
    dropped = 8 - min(max(int(4 * m), 1), 8)
    return (image >> dropped) << dropped


def _solarize(transform: Any, image: np.ndarray, m: float, rng: Any) -> np.ndarray:
    return np.where(image < min(int(256 * m), 256), image, 255 - image)


def _solarize_add(transform: Any, image: np.ndarray, m: float, rng: Any) -> np.ndarray:
    brighter = np.minimum(image.astype(np.int64) + int(110 * m), 255)
    return np.where(image < 128, brighter, image).astype(np.uint8)


def _color(transform: Any, image: np.ndarray, m: float, rng: Any) -> np.ndarray:
    return _blend(_grey(image)[..., None], image, m)


def _contrast(transform: Any, image: np.ndarray, m: float, rng: Any) -> np.ndarray:
    return _blend(int(_grey(image).mean() + 0.5), image, m)


def _brightness(transform: Any, image: np.ndarray, m: float, rng: Any) -> np.ndarray:
    return _blend(0, image, m)


def _sharpness(transform: Any, image: np.ndarray, m: float, rng: Any) -> np.ndarray:
    smooth = image.astype(np.int64)
    around = np.lib.stride_tricks.sliding_window_view(smooth, (3, 3), axis=(0, 1))
    if around.size:
        inner = smooth[1:-1, 1:-1]
        smooth[1:-1, 1:-1] = (around.sum((-2, -1)) + 4 * inner) // 13
    return _blend(smooth, image, m)


def _cutout(
    transform: RandAugment, image: np.ndarray, m: float, rng: np.random.Generator
) -> np.ndarray:
    half = int(transform.cutout_const * m)
    y, x = (int(rng.integers(size)) for size in image.shape[:2])
    result = image.copy()
    result[max(y - half, 0) : y + half, max(x - half, 0) : x + half] = _GREY
    return result


def _grey(image: np.ndarray) -> np.ndarray:
    return np.floor(255.5 * (image @ np.array([0.2989, 0.587, 0.114])) / 255)


def _blend(start: Any, image: np.ndarray, m: float) -> np.ndarray:
    factor = 1.8 * m + 0.1
    return np.clip(
        start + factor * (image - np.asarray(start, np.float64)), 0, 255
    ).astype(np.uint8)


OPERATIONS: Mapping[str, Callable[..., np.ndarray | Movement]] = {
    "AutoContrast": _auto_contrast,
    "Equalize": _equalize,
    "Invert": _invert,
    "Rotate": _rotate,
    "Posterize": _posterize,
    "Solarize": _solarize,
    "Color": _color,
    "Contrast": _contrast,
    "Brightness": _brightness,
    "Sharpness": _sharpness,
    "ShearX": _shear_x,
    "ShearY": _shear_y,
    "TranslateX": _translate_x,
    "TranslateY": _translate_y,
    "Cutout": _cutout,
    "SolarizeAdd": _solarize_add,
}
