"""PNG pictures, also animated ones, from arrays (with zlib alone)."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # grey, RGB, RGBA


def encode_png(image: np.ndarray) -> bytes:
    """Encode a `uint8[h, w, c]` picture with 1, 3 or 4 channels.

    Example:
      >>> encode_png(np.zeros((2, 2, 3), np.uint8))[:8]
      b'\\x89PNG\\r\\n\\x1a\\n'
    """
    return _SIGNATURE + b"".join(
        [_header(image), _chunk(b"IDAT", _pixels(image)), _chunk(b"IEND", b"")]
    )


def encode_animated_png(frames: np.ndarray, *, frame_ms: int = 100) -> bytes:
    """Encode `uint8[t, h, w, c]` frames as one picture that plays in a browser."""
    height, width = frames.shape[1:3]
    chunks = [_header(frames[0]), _chunk(b"acTL", struct.pack(">II", len(frames), 0))]
    sequence = 0
    for index, frame in enumerate(frames):
        control = struct.pack(
            ">IIIIIHHBB", sequence, width, height, 0, 0, frame_ms, 1000, 0, 0
        )
        chunks.append(_chunk(b"fcTL", control))
        sequence += 1
        if index == 0:
            chunks.append(_chunk(b"IDAT", _pixels(frame)))
            continue
        data = struct.pack(">I", sequence) + _pixels(frame)
        chunks.append(_chunk(b"fdAT", data))
        sequence += 1
    return _SIGNATURE + b"".join([*chunks, _chunk(b"IEND", b"")])


def to_uint8(values: np.ndarray) -> np.ndarray:
    """Values in [0, 1] as bytes: rounded, clipped, NaN as 0; bytes stay."""
    if values.dtype == np.uint8:
        return values
    scaled = np.nan_to_num(np.asarray(values, np.float32) * 255, nan=0.0)
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _header(image: np.ndarray) -> bytes:
    height, width, channels = image.shape
    return _chunk(
        b"IHDR",
        struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0),
    )


def _pixels(image: np.ndarray) -> bytes:
    rows = np.ascontiguousarray(image).reshape(image.shape[0], -1)
    no_filter = np.zeros((len(rows), 1), np.uint8)
    return zlib.compress(np.concatenate([no_filter, rows], axis=1).tobytes())


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
