"""Parts of videos in time: clips, windows and walks."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kauldron.contrib.data.arrays import check_positive, takes_tensor_fields
from kauldron.data.transforms import (
    ElementWiseRandomTransform,
    MapTransform,
    RandomMapTransform,
)
from kauldron.data.transforms.fields import check_has_fields
from kauldron.data.transforms.values import array_module, as_array, tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Clip:
    """What clips share.

    Attributes:
      input_key: The video, frames first.
      output_key: Where the clip goes; by default in place of the video.
      num_frames: Length of a clip.
      stride: Distance of its frames.
      indices_key: Where the numbers of the frames go, if anywhere.
    """

    input_key: str = "images"
    output_key: str | None = None
    num_frames: int = 1
    stride: int = 1
    indices_key: str | None = None

    def __post_init__(self) -> None:
        check_positive(self, "num_frames", "stride")

    def _video(self, features: Mapping[str, Any]) -> Any:
        check_has_fields(features, [self.input_key], self)
        video = as_array(features[self.input_key])
        if not len(video):
            raise ValueError(f"{type(self).__name__}: the video has no frames.")
        return video

    def _free(self, video: Any) -> int:
        """Return how many frames the video has besides those that a clip spans."""
        return max(0, len(video) - self.num_frames * self.stride)

    def _cut(
        self, features: Mapping[str, Any], video: Any, starts: Any
    ) -> dict[str, Any]:
        """Return the record with the clips that start at some frames.

        Past the end of the video its last frame is repeated.
        """
        offsets = np.arange(self.num_frames) * self.stride
        indices = (np.atleast_1d(starts)[:, None] + offsets).ravel()
        indices = np.minimum(indices, len(video) - 1)
        result = {**features, self.output_key or self.input_key: video[indices]}
        if self.indices_key is not None:
            result[self.indices_key] = indices
        return result


@takes_tensor_fields("input_key")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstClip(_Clip, MapTransform):
    """The clip at the beginning of a video.

    Example:
      >>> clip = FirstClip(num_frames=3, stride=2, indices_key="frames")
      >>> clip.map({"images": np.arange(4) * 10})
      {'images': array([ 0, 20, 30]), 'frames': array([0, 2, 3])}
    """

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        return self._cut(element, self._video(element), 0)


@takes_tensor_fields("input_key")
@dataclasses.dataclass(frozen=True, kw_only=True)
class MiddleClip(_Clip, MapTransform):
    """The clip in the middle of a video."""

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        video = self._video(element)
        return self._cut(element, video, self._free(video) // 2)


@takes_tensor_fields("input_key")
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiClip(_Clip, MapTransform):
    """Several clips, evenly spaced from the beginning to the end of a video.

    Attributes:
      num_clips: How many; their frames follow each other, clip by clip.
    """

    num_clips: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "num_clips")

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        video = self._video(element)
        starts = np.linspace(0, self._free(video), self.num_clips)
        return self._cut(element, video, starts.astype(np.int64))


@takes_tensor_fields("input_key")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomClip(_Clip, RandomMapTransform):
    """A clip at a random place of a video."""

    def random_map(
        self, element: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
        video = self._video(element)
        return self._cut(element, video, rng.integers(max(1, self._free(video))))


#
# Windows and walks at random places
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Window(ElementWiseRandomTransform):
    length: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "length")

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        frames = as_array(element)
        if not frames.shape or not len(frames):
            raise ValueError(f"{type(self).__name__}: there are no frames.")
        return self._choose(frames, rng)

    @abc.abstractmethod
    def _choose(self, frames: Any, rng: np.random.Generator) -> Any: ...


def _pad(frames: Any, length: int, mode: str, value: float) -> Any:
    """Fill up at the end; `mode` as in `np.pad`, or `"last"`."""
    widths = [(0, length - len(frames))] + [(0, 0)] * (frames.ndim - 1)
    options: dict[str, Any] = {"mode": "edge" if mode == "last" else mode}
    if mode == "constant":
        options["constant_values"] = np.asarray(value).astype(frames.dtype)
    return array_module(frames).pad(frames, widths, **options)


@takes_tensor_fields("key")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TemporalRandomWindow(_Window):
    """A window at a random place of a sequence.

    Attributes:
      key: The field or fields; those of one length get the same window.
      length: Frames of the window.
      padding_mode: How a window that is too short goes on: `"constant"`, `"last"` for
        its last frame, or another mode of `np.pad`.
      padding_value: What `"constant"` fills with.
      frame_rate: Distance of the frames of the window in the sequence, or `"random"` for
        one with which it fits.

    Example:
      >>> window = TemporalRandomWindow(key="x", length=3)
      >>> window({"x": np.arange(10)}, np.random.default_rng(0))["x"]
      array([6, 7, 8])
      >>> window({"x": np.array([4, 5])}, np.random.default_rng(0))["x"]
      array([4, 5, 0])
    """

    padding_mode: str = "constant"
    padding_value: float = 0.0
    frame_rate: int | Literal["random"] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frame_rate != "random":
            check_positive(self, "frame_rate")

    def _choose(self, frames: Any, rng: np.random.Generator) -> Any:
        length = min(self.length, len(frames))
        rate = self.frame_rate
        if rate == "random":
            rate = int(rng.integers(1, len(frames) // length + 1))
        span = rate * length
        start = int(rng.integers(max(0, len(frames) - span) + 1))
        chosen = frames[start : start + span : rate]
        return _pad(chosen, self.length, self.padding_mode, self.padding_value)


@takes_tensor_fields("key")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TemporalRandomStridedWindow(_Window):
    """A window of consecutive frames that starts at a multiple of the stride.

    Attributes:
      key: The field or fields; those of one length get the same window.
      length: Frames of the window.
      stride: Distance of the places where a window may start.
      padding_value: What a window at the end is filled up with.
    """

    stride: int
    padding_value: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "stride")

    def _choose(self, frames: Any, rng: np.random.Generator) -> Any:
        start = self.stride * int(rng.integers(-(-len(frames) // self.stride)))
        chosen = frames[start : start + self.length]
        return _pad(chosen, self.length, "constant", self.padding_value)


@takes_tensor_fields("key")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TemporalRandomWalk(_Window):
    """Frames met on a walk through time that turns at the ends, and now and then.

    Attributes:
      key: The field or fields; those of one length get the same walk.
      length: Frames of the result.
      thresh: Probability of turning before each step.
    """

    thresh: float = 0.05

    def _choose(self, frames: Any, rng: np.random.Generator) -> Any:
        # Forwards and backwards through the video is once around a ring.
        ring = [*range(len(frames)), *range(len(frames) - 2, 0, -1)]
        start = rng.integers(len(ring))
        turns = np.where(rng.random(self.length) < self.thresh, -1, 1)
        places = (start + np.cumsum(np.cumprod(turns))) % len(ring)
        return frames[np.array(ring)[places]]


@dataclasses.dataclass(frozen=True)
class SliceVideosIntoFrames:
    """Makes one record of each frame of a video.

    Attributes:
      tensors_to_slice_names: Fields whose first axis is time.
      context_tensors_names: Fields that every frame gets whole. All others are dropped.
      max_fan_out: Most frames that a video may have. Pipelines number the frames by it,
        so that a much too large number costs time.

    Example:
      >>> frames = SliceVideosIntoFrames(["video"], ["fps"])
      >>> record = {"video": np.arange(2), "fps": 30, "name": "dog"}
      >>> [{k: int(v) for k, v in frame.items()} for frame in frames.flat_map(record)]
      [{'video': 0, 'fps': 30}, {'video': 1, 'fps': 30}]
    """

    tensors_to_slice_names: Sequence[str]
    context_tensors_names: Sequence[str] = ()
    max_fan_out: int = 256

    def __post_init__(self) -> None:
        for name in ("tensors_to_slice_names", "context_tensors_names"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.tensors_to_slice_names:
            raise ValueError("SliceVideosIntoFrames: name at least one field to slice.")

    def flat_map(self, element: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the records of the frames."""
        lengths = {name: len(element[name]) for name in self.tensors_to_slice_names}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise ValueError(f"The fields to slice differ in length: {listed}.")
        context = {name: element[name] for name in self.context_tensors_names}
        return [
            {**{name: element[name][frame] for name in lengths}, **context}
            for frame in range(next(iter(lengths.values())))
        ]

    def apply_to_dataset(self, ds: Any) -> Any:
        """Return the frames of a `tf.data.Dataset` of videos, as a data set."""
        return ds.flat_map(self._frames_of_tensors)

    def _frames_of_tensors(self, element: Mapping[str, Any]) -> Any:
        videos = {name: element[name] for name in self.tensors_to_slice_names}
        context = {name: element[name] for name in self.context_tensors_names}
        frames = tf.data.Dataset.from_tensor_slices(videos)
        return frames.map(lambda frame: {**frame, **context})
