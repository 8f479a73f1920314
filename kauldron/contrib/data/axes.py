"""Transforms of axes: flatten, repeat, slice and stack videos and images."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import einops
import numpy as np

from kauldron.contrib.data.arrays import NumpyTransform, check_positive, takes_tensors
from kauldron.data.transforms import ElementWiseTransform, Rearrange
from kauldron.data.transforms.resize import nearest_indices
from kauldron.data.transforms.values import array_module, as_array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeat(Rearrange):
    """`einops.repeat` of a field.

    Attributes:
      key: The field or fields.
      pattern: Such as `"h w -> h w c"`, about the axes of one record.
      axes_lengths: Sizes of the new axes.

    Example:
      >>> Repeat(key="x", pattern="a -> a b", axes_lengths={"b": 2}).map({"x": [1, 2]})
      {'x': array([[1, 1],
             [2, 2]])}
    """

    _operation = staticmethod(einops.repeat)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SliceWithStride(ElementWiseTransform):
    """Every `stride`-th entry of the first axis.

    Attributes:
      key: The field or fields.
      stride: Distance of the entries.
      num_elements: How many at most; `None` for all.
    """

    stride: int
    num_elements: int | None = None

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride < 1 or (self.num_elements is not None and self.num_elements < 0):
            raise ValueError(
                f"SliceWithStride(stride={self.stride}, num_elements="
                f"{self.num_elements}): expected stride >= 1, num_elements >= 0."
            )

    def map_element(self, element: Any) -> Any:
        return as_array(element)[:: self.stride][: self.num_elements]

    def map_element_batch(self, elements: Any) -> Any:
        return as_array(elements)[:, :: self.stride][:, : self.num_elements]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FetchElementZero(ElementWiseTransform):
    """The first entry of the first axis.

    Attributes:
      key: The field or fields.
    """

    traceable = True

    def map_element(self, element: Any) -> Any:
        return as_array(element)[0]

    def map_element_batch(self, elements: Any) -> Any:
        return as_array(elements)[:, 0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlattenVideo(Rearrange):
    """Time and space of a video as one axis: `... t h w c -> ... (t h w) c`.

    Attributes:
      key: The field or fields.
    """

    pattern: str = dataclasses.field(default="... t h w c -> ... (t h w) c", init=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _WithSizes(Rearrange):
    """A pattern of its own, with axes whose sizes are attributes."""

    axes_lengths: Mapping[str, int] = dataclasses.field(
        default_factory=dict, init=False
    )
    _sizes: ClassVar[Mapping[str, str]]  # from axes to attributes

    def __post_init__(self) -> None:
        lengths = {axis: getattr(self, name) for axis, name in self._sizes.items()}
        object.__setattr__(self, "axes_lengths", lengths)
        super().__post_init__()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeChunkedFlattenVideo(_WithSizes):
    """Chunks of time, each with its time and space as one axis.

    `... (n t) h w c -> ... n (t h w) c`, with `time_chunk_size` frames t in a chunk.

    Attributes:
      key: The field or fields.
      time_chunk_size: Frames in a chunk; must divide the length of the video.
    """

    pattern: str = dataclasses.field(
        default="... (n t) h w c -> ... n (t h w) c", init=False
    )
    time_chunk_size: int

    _sizes = {"t": "time_chunk_size"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpacetimeToDepth(_WithSizes):
    """Blocks of pixels and frames as channels.

    Attributes:
      key: The field or fields, `(..., t, h, w, c)`.
      space2depth_factor: Edge of a block in space; must divide height and width.
      time2depth_factor: Frames of a block; must divide the length.
    """

    pattern: str = dataclasses.field(
        default="... (t b) (h s1) (w s2) c -> ... t h w (b s1 s2 c)", init=False
    )
    space2depth_factor: int
    time2depth_factor: int

    _sizes = {
        "b": "time2depth_factor",
        "s1": "space2depth_factor",
        "s2": "space2depth_factor",
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReshapeSpatialDim(_WithSizes):
    """The last axis as height and width: `... (h w) -> ... h w`.

    Attributes:
      key: The field or fields.
      h: Height.
      w: Width.
    """

    pattern: str = dataclasses.field(default="... (h w) -> ... h w", init=False)
    h: int
    w: int

    _sizes = {"h": "h", "w": "w"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepeatFrames(NumpyTransform):
    """Repeats frames, evenly spread, until a number divides the length of the video.

    Attributes:
      key: The field or fields, `(..., t, h, w, c)`; frames are the first axis of those
        with fewer than four.
      divisible_by: The number.

    Example:
      >>> RepeatFrames(key="x", divisible_by=2).map({"x": [0, 1, 2]})
      {'x': array([0, 1, 1, 2])}
    """

    divisible_by: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "divisible_by")

    def _map_array(self, array: Any, num_batch_axes: int) -> Any:
        axis = max(len(array.shape) - 4, num_batch_axes)
        size = array.shape[axis]
        indices = nearest_indices(size, size + -size % self.divisible_by)
        return array_module(array).take(array, indices, axis=axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractInitialFixedLengthClip(ElementWiseTransform):
    """The first frames of a list of frames as one array, zeros where there are too few.

    Attributes:
      key: The field or fields with a list of equal frames, or an array of frames.
      num_frames: Length of the clip.
    """

    num_frames: int

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        return self.map_element_batch(as_array([*element[: self.num_frames]])[None])[0]

    def map_element_batch(self, elements: Any) -> Any:
        frames = as_array(elements)[:, : self.num_frames]
        if not frames.shape[1]:
            raise ValueError(
                "The video has no frame that would give the size of the clip."
            )
        missing = self.num_frames - frames.shape[1]
        return np.pad(frames, [(0, 0), (0, missing)] + [(0, 0)] * (frames.ndim - 2))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Stack(ElementWiseTransform):
    """Concatenates the entries of the first axis along one of their own axes."""

    _min_rank: ClassVar[int]  # smaller entries get axes in front
    _axis: ClassVar[int]  # or the last one, where there are fewer
    traceable = True

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        parts = [as_array(part) for part in element]
        if not parts:
            raise ValueError(f"{type(self).__name__}: there is nothing to join.")
        return self._join(parts, num_batch_axes=0)

    def map_element_batch(self, elements: Any) -> Any:
        elements = as_array(elements)
        if len(elements.shape) < 2 or not elements.shape[1]:
            return self.map_element(elements[0])  # has the words for it
        parts = [elements[:, i] for i in range(elements.shape[1])]
        return self._join(parts, num_batch_axes=1)

    def _join(self, parts: Sequence[Any], num_batch_axes: int) -> Any:
        lifted = []
        for part in parts:
            lead, shape = part.shape[:num_batch_axes], part.shape[num_batch_axes:]
            ones = (1,) * (self._min_rank - len(shape))
            lifted.append(part.reshape(*lead, *ones, *shape))
        axis = min(num_batch_axes + self._axis, lifted[0].ndim - 1)
        return array_module(parts[0]).concatenate(lifted, axis=axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HStack(_Stack):
    """The entries of a field side by side, as `np.hstack` of them.

    Attributes:
      key: The field or fields: lists of arrays, or arrays with the entries first.

    Example:
      >>> import numpy as np
      >>> HStack(key="frames").map({"frames": np.zeros((5, 4, 6, 3))})["frames"].shape
      (4, 30, 3)
    """

    _min_rank = 1
    _axis = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class VStack(_Stack):
    """The entries of a field one below the other, as `np.vstack` of them.

    Attributes:
      key: The field or fields: lists of arrays, or arrays with the entries first.

    Example:
      >>> import numpy as np
      >>> VStack(key="frames").map({"frames": np.zeros((5, 4, 6, 3))})["frames"].shape
      (20, 6, 3)
    """

    _min_rank = 2
    _axis = 0
