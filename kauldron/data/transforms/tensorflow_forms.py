"""The same transforms on TensorFlow tensors, for `tf.data` pipelines.

Works on eager tensors and inside `tf.data` maps, where sizes may be unknown until the
graph runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kauldron.data.transforms.cast import cast
from kauldron.data.transforms.crop_shape import check_crop_fits
from kauldron.data.transforms.lazy_tensorflow import tf
from kauldron.data.transforms.linear_map import Line, limits_in

if TYPE_CHECKING:
    from kauldron.data.transforms.resize import Resize


def value_range(tensor: Any, line: Line, dtype: np.dtype, clip_values: bool) -> Any:
    """`ValueRange`."""
    if tensor.dtype.is_complex:
        raise TypeError(f"expected real numbers, got {tensor.dtype.name}.")
    result = line.at(tensor)
    if clip_values:
        result = tf.clip_by_value(result, line.low, line.high)
    return round_and_cast(result, dtype)


def round_and_cast(tensor: Any, dtype: np.dtype) -> Any:
    """Cast floats; to integers by rounding, without overflow."""
    if dtype.kind in "iu":
        limits = limits_in(dtype, tensor.dtype.as_numpy_dtype)
        tensor = tf.clip_by_value(tf.round(tensor), *limits)
    elif dtype.kind == "b":
        tensor = tf.round(tensor)
    return cast(tensor, dtype)


def gather(tensor: Any, indices: Sequence[int], axis: int) -> Any:
    """`Gather`; negative indices count from the end."""
    wanted = tf.constant(indices, tf.int32)
    size = tf.shape(tensor)[axis]
    outside = tf.reduce_any((wanted < -size) | (wanted >= size))
    check = tf.debugging.Assert(~outside, ["Gather: index out of range", wanted, size])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.gather(tensor, tf.where(wanted < 0, wanted + size, wanted), axis=axis)


def center_crop(tensor: Any, target: Sequence[int | None], owner: Any) -> Any:
    """`CenterCrop`; where a size is unknown, the graph fails if it is too small."""
    check_crop(tensor, target, owner)
    wanted = crop_sizes(tensor, target)
    cropped = tf.slice(tensor, (tf.shape(tensor) - wanted) // 2, wanted)
    return with_crop_shape(cropped, tensor, target)


def check_crop(tensor: Any, target: Sequence[int | None], owner: Any) -> None:
    """Raise `ValueError` if the crop cannot fit, as far as sizes are known."""
    shape = list(tensor.shape)
    if len(shape) == len(target):
        shape = [
            want or 0 if size is None else size for size, want in zip(shape, target)
        ]
    check_crop_fits(target, shape, owner)


def crop_sizes(tensor: Any, target: Sequence[int | None]) -> Any:
    """The sizes of a crop as a tensor."""
    sizes = tf.shape(tensor)
    return tf.stack(
        [sizes[axis] if size is None else size for axis, size in enumerate(target)]
    )


def with_crop_shape(cropped: Any, tensor: Any, target: Sequence[int | None]) -> Any:
    """Tell the graph the sizes of a crop that are known."""
    known = zip(tensor.shape, target)
    return tf.ensure_shape(
        cropped, [size if want is None else want for size, want in known]
    )


def resize(tensor: Any, transform: Resize) -> Any:
    """`Resize`; `area` is the default for floats."""
    *lead, height, width, channels = _sizes(tensor)
    size = _new_size(transform, height, width)
    integers = tensor.dtype.is_integer or tensor.dtype == tf.bool
    method = transform.method or ("nearest" if integers else "area")
    images = tf.reshape(tensor, [-1, height, width, channels])
    if tensor.dtype == tf.bool:
        images = tf.cast(images, tf.uint8)
    resized = tf.image.resize(images, size, method, antialias=transform.antialias)
    dtype = tf.float32 if integers and method != "nearest" else tensor.dtype
    resized = tf.cast(tf.reshape(resized, [*lead, size[0], size[1], channels]), dtype)
    return tf.ensure_shape(
        resized, [*tensor.shape[:-3], *_static(size), tensor.shape[-1]]
    )


def one_hot(
    labels: Any, num_classes: int, on: float, off: float, *, merge: bool
) -> Any:
    """`OneHot`; labels that are no class give no one, since a graph cannot raise."""
    labels = tf.cast(labels, tf.int64)
    hits = labels[..., tf.newaxis] == tf.range(num_classes, dtype=tf.int64)
    if merge:
        hits = tf.reduce_any(hits, axis=-2)
    return tf.where(hits, tf.constant(on, tf.float32), tf.constant(off, tf.float32))


def _sizes(tensor: Any) -> list[Any]:
    """The sizes as far as they are known, otherwise scalar tensors."""
    dynamic = tf.shape(tensor)
    return [
        dynamic[axis] if size is None else size
        for axis, size in enumerate(tensor.shape)
    ]


def _new_size(transform: Resize, height: Any, width: Any) -> Sequence[Any]:
    if transform.size or (isinstance(height, int) and isinstance(width, int)):
        return transform.new_size(height, width)
    edges = tf.cast(tf.stack([height, width]), tf.float64)
    if transform.min_size is not None:
        ratio = transform.min_size / tf.reduce_min(edges)
    else:
        assert transform.max_size is not None
        ratio = transform.max_size / tf.reduce_max(edges)
    return tf.unstack(tf.maximum(1, tf.cast(tf.round(edges * ratio), tf.int32)))


def _static(sizes: Sequence[Any]) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in sizes]
