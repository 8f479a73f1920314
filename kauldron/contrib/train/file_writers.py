"""Writers of more files: arrays as npz, videos as animated images."""

from __future__ import annotations

import dataclasses
import functools
import io
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from etils import epath

from kauldron import kontext
from kauldron.errors import did_you_mean
from kauldron.files import write_atomically
from kauldron.writers import KDMetricWriter
from kauldron.writers.png import encode_animated_png
from kauldron.writers.writer import route

#
# Arrays
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class NpzWriter(KDMetricWriter):
    """A `KDMetricWriter` that also saves the arrays of summaries, for `np.load`.

    At each step that writes summaries it writes
    `<workdir>/array_dumps/<collection>/<step>.npz`, if there is anything to save.

    Attributes:
      key_patterns: Regular expressions; summaries whose name (`summaries/<path>`)
        matches any of them are saved. `None` for all. Texts are never saved.
      save_scalars: Whether to save losses and metrics too.
      output_dir: The folder, instead of the one in the workdir.
      static_info: Arrays and numbers to put into every file.
    """

    key_patterns: Sequence[str] | None = None
    save_scalars: bool = False
    output_dir: epath.PathLike | None = None
    static_info: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.key_patterns, str):
            object.__setattr__(self, "key_patterns", (self.key_patterns,))
        for pattern in self.key_patterns or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"NpzWriter.key_patterns: {pattern!r} is not a regular expression: "
                    f"{error}."
                ) from None

    def write_values(
        self, step: int, output: Any, *, log_summaries: bool, **kwargs: Any
    ) -> None:
        arrays = self._selected(output) if log_summaries else {}
        summaries = {
            name: value
            for name, value in output.summary_values.items()
            if name not in arrays or _can_be_shown(name, value)
        }
        super().write_values(
            step,
            output.replace(summary_values=summaries),
            log_summaries=log_summaries,
            **kwargs,
        )
        if arrays:
            arrays = {**arrays, **self.static_info}
            self._later(_save, self._path(step), arrays)

    def _selected(self, output: Any) -> dict[str, np.ndarray]:
        values = {
            name: value
            for name, value in output.summary_values.items()
            if self._matches(name) and isinstance(value, np.ndarray)
        }
        if self.save_scalars:
            values |= output.loss_values | output.metric_values
        arrays = {name: np.asarray(value) for name, value in values.items()}
        return {name: a for name, a in arrays.items() if a.dtype.kind not in "OUS"}

    def _matches(self, name: str) -> bool:
        patterns = self.key_patterns
        return patterns is None or any(re.search(p, name) for p in patterns)

    def _path(self, step: int) -> epath.Path:
        if self.output_dir is None:
            folder = epath.Path(self.workdir) / "array_dumps" / self.collection
        else:
            folder = epath.Path(self.output_dir)
        return folder / f"{step:09d}.npz"


def _can_be_shown(name: str, array: np.ndarray) -> bool:
    """Return whether event files have a form for it; otherwise only npz files do."""
    complaints: list[str] = []
    route({}, {name: array}, warn=complaints.append)
    return not complaints


def _save(path: epath.Path, arrays: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                array = _without_own_types(np.asanyarray(value))
                np.lib.format.write_array(file, array, allow_pickle=False)
    write_atomically(path, buffer.getvalue())


def _without_own_types(array: np.ndarray) -> np.ndarray:
    """Convert bfloat16 and the small floats to float32: `np.load` does not know them."""
    is_own = array.dtype.kind == "V" and "float" in array.dtype.name
    return array.astype(np.float32) if is_own else array


#
# Videos
#


_FORMATS = ("GIF", "WEBP", "PNG")


class VideoOptions(NamedTuple):
    """How a video is written."""

    save_format: str = "GIF"
    frame_duration_ms: int = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class GifVideoWriter(KDMetricWriter):
    """A `KDMetricWriter` that writes `uint8` videos as GIF, WEBP or animated PNG.

    The summary that makes the video says which one, and how long a frame is shown, by
    its attributes `save_format` and `frame_duration_ms` (see
    `kd.contrib.summaries.ShowVideosAsGif`).

    Attributes:
      write_video_summaries: Whether to write videos at all.
      video_options: By collection and name of the summary; taken from the trainer.
    """

    write_video_summaries: bool = True
    video_options: Mapping[str, Mapping[str, VideoOptions]] = dataclasses.field(
        default_factory=dict, repr=False
    )

    def update_from_root_cfg(self, root_cfg: Any) -> Self:
        updated = super().update_from_root_cfg(root_cfg)
        options = {"train": _options_of(root_cfg.train_summaries)}
        for name, evaluator in root_cfg.evals.items():
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
                encode = _encoder(self._options(name))
                self._submit("videos", step, {name: video}, encode)
            else:
                others[name] = video
        if others:
            super().write_videos(step, others)

    def write_animation(
        self,
        step: int,
        videos: Mapping[str, np.ndarray],
        img_format: str,
        durations: Mapping[str, int] | None = None,
    ) -> None:
        """Write videos as animated pictures.

        Args:
          step: The step they belong to.
          videos: By name, `uint8` of shape `n t h w 1|3`.
          img_format: `"GIF"`, `"WEBP"` or `"PNG"`.
          durations: How many milliseconds a frame is shown, by name; 100 if not given.
        """
        for name, video in videos.items():
            duration = (durations or {}).get(name, 100)
            encode = _encoder(VideoOptions(img_format.upper(), duration))
            self._submit("videos", step, {name: video}, encode)

    def _options(self, name: str) -> VideoOptions:
        for collection in (self.collection, "train"):
            options = self.video_options.get(collection, {}).get(name)
            if options is not None:
                return options
        return VideoOptions()


def _options_of(summaries: Mapping[str, Any]) -> dict[str, VideoOptions]:
    """Return the options of the summaries that have any, by the name of their values."""
    flat = kontext.flatten_with_path(summaries, prefix="summaries", separator="/")
    return {
        name: VideoOptions(
            str(summary.save_format).upper(),
            getattr(summary, "frame_duration_ms", VideoOptions().frame_duration_ms),
        )
        for name, summary in flat.items()
        if hasattr(summary, "save_format")
    }


def _encoder(options: VideoOptions) -> Callable[[np.ndarray], bytes]:
    if options.save_format not in _FORMATS:
        raise ValueError(
            f"save_format={options.save_format!r}: expected one of "
            f"{', '.join(_FORMATS)}.{did_you_mean(options.save_format, _FORMATS)}"
        )
    if options.save_format == "PNG":
        return functools.partial(
            encode_animated_png, frame_ms=options.frame_duration_ms
        )
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise ImportError(
            "kd.contrib.train.GifVideoWriter needs Pillow for GIF and WEBP: pip install "
            '"kauldron[images]"'
        ) from None
    return functools.partial(_encode_with_pillow, options=options)


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
