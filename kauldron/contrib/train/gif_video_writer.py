"""Videos as animated images of the kind that their summary asks for."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from kauldron import kontext
from kauldron.contrib.train.queued_writer import QueuedWriter
from kauldron.writers.png import encode_animated_png

_FORMATS = ("GIF", "WEBP", "PNG")


class VideoOptions(NamedTuple):
    """How a video is written."""

    save_format: str = "GIF"
    frame_duration_ms: int = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class GifVideoWriter(QueuedWriter):
    """A `KDMetricWriter` that writes `uint8` videos as GIF, WEBP or animated PNG.

    Which one, and how long a frame is shown, is said by the summary that makes the
    video: its attributes `save_format` and `frame_duration_ms` (see
    `kd.contrib.summaries.ShowVideosAsGif`).

    Attributes:
      write_video_summaries: Whether to write videos at all.
      video_options: By collection and name of the summary; taken from the trainer.
    """

    write_video_summaries: bool = True
    video_options: Mapping[str, Mapping[str, VideoOptions]] = dataclasses.field(
        default_factory=dict, repr=False
    )

    def update_from_root_cfg(self, root: Any) -> Self:
        updated = super().update_from_root_cfg(root)
        options = {"train": _options_of(root.train_summaries)}
        for name, evaluator in root.evals.items():
            summaries = getattr(evaluator, "summaries", None)
            if isinstance(summaries, Mapping):
                options[name] = _options_of(summaries)
        if options == updated.video_options:
            return updated
        return dataclasses.replace(updated, video_options=options)

    def write_videos(self, step: int, videos: Mapping[str, np.ndarray]) -> None:
        if not self.write_video_summaries:
            return
        others = {}
        for name, video in videos.items():
            if video.dtype == np.uint8 and video.shape[-1] in (1, 3):
                options = self._options(name)
                encode = _encoder(options)
                self._later(self._write_encoded, step, name, video, encode, options)
            else:
                others[name] = video
        if others:
            super().write_videos(step, others)

    def _options(self, name: str) -> VideoOptions:
        for collection in (self.collection, "train"):
            options = self.video_options.get(collection, {}).get(name)
            if options is not None:
                return options
        return VideoOptions()

    def _write_encoded(
        self, step: int, name: str, videos: np.ndarray, encode: Any, options: Any
    ) -> None:
        encoded = [encode(video, options) for video in videos]
        self._submit("encoded_images", step, name, encoded, videos.shape[2:])


def _options_of(summaries: Mapping[str, Any]) -> dict[str, VideoOptions]:
    """Options of the summaries that have any, by the name of their values."""
    flat = kontext.flatten_with_path(summaries, prefix="summaries", separator="/")
    return {
        name: VideoOptions(
            str(summary.save_format).upper(),
            getattr(summary, "frame_duration_ms", VideoOptions().frame_duration_ms),
        )
        for name, summary in flat.items()
        if hasattr(summary, "save_format")
    }


def _encoder(options: VideoOptions) -> Any:
    if options.save_format not in _FORMATS:
        raise ValueError(
            f"save_format={options.save_format!r} is not known: "
            f"it is one of {', '.join(_FORMATS)}."
        )
    if options.save_format == "PNG":
        return _encode_png
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise ImportError(
            "kd.contrib.train.GifVideoWriter needs Pillow for GIF and WEBP: pip install "
            '"kauldron[images]"'
        ) from None
    return _encode_with_pillow


def _encode_png(video: np.ndarray, options: VideoOptions) -> bytes:
    return encode_animated_png(video, frame_ms=options.frame_duration_ms)


def _encode_with_pillow(video: np.ndarray, options: VideoOptions) -> bytes:
    from PIL import Image

    pictures = video[..., 0] if video.shape[-1] == 1 else video
    frames = [Image.fromarray(picture) for picture in pictures]
    buffer = io.BytesIO()
    frames[0].save(
        buffer,
        format=options.save_format,
        save_all=True,
        append_images=frames[1:],
        duration=options.frame_duration_ms,
        loop=0,
        **({"lossless": True} if options.save_format == "WEBP" else {}),
    )
    return buffer.getvalue()
