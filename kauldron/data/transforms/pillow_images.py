"""Images of 8 bits per channel, cropped and resized by Pillow, also straight from a file.

Pillow works on bytes, without the detour over floats, and outside Python's lock. Its
bilinear filter is the one of `resize`, rounded after each of the two axes: results are
within one level of it. Nothing else decodes or resizes such images, so that results do
not depend on what happens to be installed.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # RGBA would be weighted by its last channel
_PLAIN_MODES = ("L", "RGB")  # those of which Pillow resizes each channel by itself
_BYTE_MODES = ("L", "RGB", "RGBA", "CMYK", "YCbCr", "HSV")  # a byte for each channel
_JPEG_SCALES = (8, 4, 2)


@functools.cache
def pillow(user: str) -> types.ModuleType:
    """Return the module `PIL.Image`, or raise and name who needs it."""
    try:
        import PIL.Image
    except ImportError as error:
        raise ImportError(
            f'{user} needs Pillow: pip install "kauldron[images]"'
        ) from error
    return PIL.Image


class EncodedImage:
    """An image file in memory, decoded when its pixels are needed.

    It looks like the `uint8[h, w, c]` that it stands for, as far as crops need to know.
    Crops convert only what they cut out; that cannot be written to, which saves a copy.

    Args:
      content: The file.
      mode: Of Pillow, such as "RGB" or "L": what to convert it to.
      name: Of the file, for messages.

    Raises:
      ValueError: It is not an image; names it.
    """

    dtype = np.dtype(np.uint8)
    ndim = 3

    def __init__(self, content: bytes, *, mode: str, name: str):
        self._content = content
        self._mode = mode
        self._name = name
        self._frame = _JpegFrame.find(content)
        height, width = self._try(self._read_size)
        self.shape = (height, width, pillow("").getmodebands(mode))

    def __getitem__(self, index: tuple[Any, ...]) -> np.ndarray:
        """Return a piece: `image[rows, columns, channels]`, slices without steps."""
        *lead, rows, columns, channels = index
        assert lead in ([], [...])
        piece = self._try(lambda: self._cropped(rows, columns))
        return _read_only_pixels(piece)[..., channels]

    def decode(self) -> np.ndarray:
        """Return the pixels, as an array of their own."""
        return self[:, :, :].copy()

    def resized(self, rows: slice, columns: slice, size: tuple[int, int]) -> np.ndarray:
        """Return a piece, resized to `(h, w)` with the bilinear filter.

        A JPEG of which the piece is at least four times as large as the result is
        decoded at a half, a quarter or an eighth of its size, twice the result or more.
        """
        if self._mode not in _PLAIN_MODES:
            return _resized_pixels(self[rows, columns, :], size)
        return _read_only_pixels(self._try(lambda: self._resized(rows, columns, size)))

    def _resized(self, rows: slice, columns: slice, size: tuple[int, int]) -> Any:
        box = _box(rows, columns, self.shape)
        scale = self._draft_scale(box, size)
        if scale == 1:
            return _resize(self._cropped(rows, columns), size)
        image = self._open()
        height, width, _ = self.shape
        image.draft(None, (width // scale, height // scale))
        x_scale, y_scale = (-(-e // s) for e, s in zip((width, height), image.size))
        left, top, right, bottom = box
        box = (left / x_scale, top / y_scale, right / x_scale, bottom / y_scale)
        return _resize(_in_mode(image, self._mode), size, box)

    def _draft_scale(self, box: Sequence[int], size: tuple[int, int]) -> int:
        """Return by how much the file may be decoded smaller than it is."""
        left, top, right, bottom = box
        spare = min((bottom - top) // size[0], (right - left) // size[1]) // 2
        if self._frame is None:
            return 1
        return next((scale for scale in _JPEG_SCALES if scale <= spare), 1)

    def _cropped(self, rows: slice, columns: slice) -> Any:
        box = _box(rows, columns, self.shape)
        image = self._open(num_rows=box[3])
        is_whole = box == (0, 0, *image.size)
        return _in_mode(image if is_whole else image.crop(box), self._mode)

    def _open(self, num_rows: int | None = None) -> Any:
        """Return an image that is not decoded yet, with at least the first rows.

        It is not kept: the pixels of all images of a batch would need much memory.
        """
        content = self._content
        if self._frame is not None and num_rows is not None:
            content = self._frame.upper_part(content, num_rows)
        return pillow("kd.data.py.ImageFolder").open(io.BytesIO(content))

    def _read_size(self) -> tuple[int, int]:
        if self._frame is not None:
            return self._frame.size
        width, height = self._open().size
        return height, width

    def _try(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Exception as error:
            raise ValueError(
                f"{self._name} cannot be decoded as an image: {error}"
            ) from error


def decoded_record(record: Any) -> Any:
    """Return the record with pixels in place of files."""
    if not isinstance(record, Mapping) or not any(
        type(value) is EncodedImage for value in record.values()
    ):
        return record
    return {
        name: value.decode() if type(value) is EncodedImage else value
        for name, value in record.items()
    }


def can_resize(image: Any, method: str) -> bool:
    """Return whether `resized` gives what the method means, to one level."""
    is_bytes = isinstance(image, EncodedImage) or (
        isinstance(image, np.ndarray) and image.dtype == np.uint8
    )
    return is_bytes and method == "bilinear"


def resized(
    image: Any, rows: slice, columns: slice, size: tuple[int, int], *, user: str
) -> np.ndarray:
    """Cut a box out of `uint8[..., h, w, c]` and resize it with the bilinear filter."""
    pillow(user)
    if isinstance(image, EncodedImage):
        return image.resized(rows, columns, size)
    return _resized_pixels(image[..., rows, columns, :], size)


def _resized_pixels(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    *lead, height, width, channels = images.shape
    if (height, width) == size:
        return images
    frames = images.reshape(-1, height, width, channels)
    if channels not in _MODES:  # one by one
        frames = np.moveaxis(frames, -1, 1).reshape(-1, height, width, 1)
    results = [_pixels(_resize(_from_pixels(frame), size)) for frame in frames]
    result = np.stack(results) if len(results) > 1 else results[0]
    if channels not in _MODES:
        result = np.moveaxis(result.reshape(-1, channels, *size), 1, -1)
    return result.reshape(*lead, *size, channels)


# ----------------------------------------------------------------------------
# The file of a JPEG
# ----------------------------------------------------------------------------

_START = b"\xff\xd8"
_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended and progressive
_SCAN = 0xDA


@dataclasses.dataclass(frozen=True)
class _JpegFrame:
    """The part of a JPEG that says how large it is.

    Attributes:
      position: Where it starts in the file.
      size: Height and width.
      block: Number of rows in each of the blocks that the picture is coded in.
    """

    position: int
    size: tuple[int, int]
    block: int

    @classmethod
    def find(cls, content: bytes) -> _JpegFrame | None:
        """Return the frame, `None` if this is not a JPEG or one of a rare kind."""
        position = 2 if content.startswith(_START) else len(content)
        while content[position : position + 1] == b"\xff":
            segment = content[position : position + 32]
            if len(segment) < 20 or segment[1] == _SCAN:
                return None
            if segment[1] in _FRAMES:
                return cls._read(position, segment)
            is_filler = segment[1] == 0xFF
            position += 1 if is_filler else 2 + int.from_bytes(segment[2:4], "big")
        return None

    @classmethod
    def _read(cls, position: int, segment: bytes) -> _JpegFrame | None:
        height = int.from_bytes(segment[5:7], "big")
        width = int.from_bytes(segment[7:9], "big")
        samplings = segment[11 : 11 + 3 * segment[9] : 3]
        block = 8 * max((sampling & 15 for sampling in samplings), default=0)
        if not height or not width or not block:  # Pillow has the words for it
            return None
        return cls(position, (height, width), block)

    def upper_part(self, content: bytes, num_rows: int) -> bytes:
        """Return a file that promises fewer rows, so that decoding ends early.

        Rows are coded from top to bottom, and those that are left are the same to the
        bit: one block more is left, because colours are blended over its edge.
        """
        num_rows = (-(-num_rows // self.block) + 1) * self.block
        if num_rows >= self.size[0]:
            return content
        at = self.position + 5
        return content[:at] + num_rows.to_bytes(2, "big") + content[at + 2 :]


# ----------------------------------------------------------------------------
# Pillow's images
# ----------------------------------------------------------------------------


def _resize(image: Any, size: tuple[int, int], box: Any = None) -> Any:
    bilinear = pillow("Resizing").Resampling.BILINEAR
    return image.resize(size[::-1], bilinear, box=box)


def _in_mode(image: Any, mode: str) -> Any:
    image.load()
    return image if image.mode == mode else image.convert(mode)


def _pixels(image: Any) -> np.ndarray:
    """Return the pixels of an image as an array of its own."""
    pixels = np.array(image, np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _read_only_pixels(image: Any) -> np.ndarray:
    if image.mode not in _BYTE_MODES:
        return _pixels(image)
    width, height = image.size
    return np.frombuffer(image.tobytes(), np.uint8).reshape(height, width, -1)


def _from_pixels(pixels: np.ndarray) -> Any:
    height, width, channels = pixels.shape
    content = np.ascontiguousarray(pixels)
    return pillow("Resizing").frombuffer(
        _MODES[channels], (width, height), content, "raw", _MODES[channels], 0, 1
    )


def _box(
    rows: slice, columns: slice, shape: tuple[int, ...]
) -> tuple[int, int, int, int]:
    top, bottom, _ = rows.indices(shape[0])
    left, right, _ = columns.indices(shape[1])
    return left, top, right, bottom
