"""Parts of videos in time: clips, windows and walks."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron.data.transforms import (
    ElementWiseRandomTransform,
    MapTransform,
    RandomMapTransform,
)
from kauldron.data.transforms.fields import missing_keys_message
from kauldron.data.transforms.values import array_module, as_array
from kauldron.errors import ReadableKeyError


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
    num_frames: int
    stride: int = 1
    indices_key: str | None = None

    def __post_init__(self) -> None:
        for name in ("num_frames", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{type(self).__name__}({name}={getattr(self, name)}): expected 1 or"
                    " more."
                )

    def _video(self, features: Mapping[str, Any]) -> Any:
        if self.input_key not in features:
            raise ReadableKeyError(
                missing_keys_message(self, [self.input_key], features)
            )
        video = as_array(features[self.input_key])
        if not len(video):
            raise ValueError(f"{type(self).__name__}: the video has no frames.")
        return video

    def _span(self) -> int:
        """Count the frames from the first to the last of a clip, both included."""
        return (self.num_frames - 1) * self.stride + 1

    def _cut(
        self, features: Mapping[str, Any], video: Any, starts: Any
    ) -> dict[str, Any]:
        """Return the record with the clips that start at some frames.

        Past the end of the video its last frame is repeated.
        """
        offsets = np.arange(self.num_frames) * self.stride
        indices = np.minimum(np.asarray(starts)[..., None] + offsets, len(video) - 1)
        result = {**features, self.output_key or self.input_key: video[indices]}
        if self.indices_key is not None:
            result[self.indices_key] = indices
        return result


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiddleClip(_Clip, MapTransform):
    """The clip in the middle of a video."""

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        video = self._video(element)
        return self._cut(element, video, max(0, len(video) - self._span()) // 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiClip(_Clip, MapTransform):
    """Several clips, evenly spaced from the beginning to the end of a video.

    Attributes:
      num_clips: How many; the result has an axis for them in front.
    """

    num_clips: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_clips < 1:
            raise ValueError(
                f"MultiClip(num_clips={self.num_clips}): expected 1 or more."
            )

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        video = self._video(element)
        last = max(0, len(video) - self._span())
        starts = np.linspace(0, last, self.num_clips).round().astype(np.int64)
        return self._cut(element, video, starts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomClip(_Clip, RandomMapTransform):
    """A clip at a random place of a video."""

    __kd_data_backend__ = "py"

    def random_map(
        self, element: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
        video = self._video(element)
        last = max(0, len(video) - self._span())
        return self._cut(element, video, int(rng.integers(0, last + 1)))


#
# Windows at random places
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Window(ElementWiseRandomTransform):
    """What windows share.

    Attributes:
      key: The field or fields; those of one length get the same window.
      length: Frames of the window.
      padding_mode: How a sequence that is too short goes on, as in `np.pad`:
        `"constant"`, `"edge"`, `"wrap"`, ...
      padding_value: What `"constant"` fills with.
    """

    length: int
    padding_mode: str = "constant"
    padding_value: float = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("length")

    @abc.abstractmethod
    def _draw(self, num_frames: int, rng: np.random.Generator) -> np.ndarray:
        """Ascending numbers of frames; those from `num_frames` on are padding."""

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        frames = as_array(element)
        if not frames.shape or not len(frames):
            raise ValueError(f"{type(self).__name__}: there are no frames.")
        indices = self._draw(len(frames), rng)
        missing = max(0, int(indices.max()) + 1 - len(frames))
        if missing:
            widths = [(0, missing)] + [(0, 0)] * (frames.ndim - 1)
            options: dict[str, Any] = {"mode": self.padding_mode}
            if self.padding_mode == "constant":
                options["constant_values"] = self.padding_value
            frames = array_module(frames).pad(frames, widths, **options)
        return frames[indices]

    def _check_positive(self, name: str) -> None:
        if getattr(self, name) < 1:
            raise ValueError(
                f"{type(self).__name__}({name}={getattr(self, name)}): expected 1 or"
                " more."
            )


def _draw_start(num_frames: int, span: int, rng: np.random.Generator) -> int:
    return int(rng.integers(0, max(0, num_frames - span) + 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TemporalRandomWindow(_Window):
    """A window at a random place of a sequence.

    Attributes:
      frame_rate: Distance of the frames of the window in the sequence.

    Example:
      >>> window = TemporalRandomWindow(key="x", length=3)
      >>> window({"x": np.arange(10)}, np.random.default_rng(0))["x"]
      array([6, 7, 8])
      >>> window({"x": np.array([4, 5])}, np.random.default_rng(0))["x"]
      array([4, 5, 0])
    """

    frame_rate: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("frame_rate")

    def _draw(self, num_frames: int, rng: np.random.Generator) -> np.ndarray:
        offsets = np.arange(self.length) * self.frame_rate
        return _draw_start(num_frames, int(offsets[-1]) + 1, rng) + offsets


@dataclasses.dataclass(frozen=True, kw_only=True)
class TemporalRandomStridedWindow(_Window):
    """A window at a random place, whose frames have a random distance.

    Attributes:
      max_stride: The largest distance. Distances with which the window is longer than
        the sequence are not drawn, as long as there is another.
    """

    max_stride: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("max_stride")

    def _draw(self, num_frames: int, rng: np.random.Generator) -> np.ndarray:
        fitting = (num_frames - 1) // max(1, self.length - 1)
        stride = int(rng.integers(1, max(1, min(self.max_stride, fitting)) + 1))
        offsets = np.arange(self.length) * stride
        return _draw_start(num_frames, int(offsets[-1]) + 1, rng) + offsets


@dataclasses.dataclass(frozen=True, kw_only=True)
class TemporalRandomWalk(ElementWiseRandomTransform):
    """Frames met on a random walk through time.

    The walk starts at a random frame, each step is drawn from `-max_step` to `max_step`,
    and at the ends of the sequence it stands still.

    Attributes:
      key: The field or fields; those of one length get the same walk.
      length: Frames of the result.
      max_step: The longest step.
    """

    length: int
    max_step: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1 or self.max_step < 0:
            raise ValueError(
                f"TemporalRandomWalk(length={self.length}, max_step={self.max_step}):"
                " expected a length from 1 on and a step from 0 on."
            )

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        frames = as_array(element)
        if not frames.shape or not len(frames):
            raise ValueError("TemporalRandomWalk: there are no frames.")
        frame = int(rng.integers(len(frames)))
        indices = [frame]
        for step in rng.integers(-self.max_step, self.max_step + 1, self.length - 1):
            frame = min(max(frame + int(step), 0), len(frames) - 1)
            indices.append(frame)
        return frames[np.array(indices)]
