"""Clips out of videos."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron.data.transforms import MapTransform, RandomMapTransform
from kauldron.data.transforms.fields import missing_keys_message
from kauldron.data.transforms.values import as_array


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
            raise KeyError(missing_keys_message(self, [self.input_key], features))
        video = as_array(features[self.input_key])
        if not len(video):
            raise ValueError(f"{type(self).__name__}: the video has no frames.")
        return video

    def _span(self) -> int:
        """Frames from the first to the last of a clip, both included."""
        return (self.num_frames - 1) * self.stride + 1

    def _cut(
        self, features: Mapping[str, Any], video: Any, starts: Any
    ) -> dict[str, Any]:
        """The record with clips from some frames on; past the end the last repeats."""
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
