"""Pictures: summaries side by side in one image, and videos as animated images."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import flax.struct
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, typechecked
from kauldron.metrics import AutoState, Metric, TreeState, truncate_field
from kauldron.metrics.image import check_vrange
from kauldron.summaries import ShowImages
from kauldron.summaries.images import (
    as_float,
    check_channels,
    rescale,
    to_unit_range,
)

Color = str | float | Sequence[float]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class ImageGrid(Metric):
    """One image with a column for each summary, and its name above it.

    Colours are names (`"black"`), hex codes (`"#ff8800"`), three integers up to 255,
    three floats in [0, 1], or one float for a gray.

    Attributes:
      columns: From header to a summary that computes images `n h w 1|3`.
      border_width: Pixels between images.
      bg_color: Colour behind the images.
      font_size: Height of the headers' font in pixels.
      font_color: Colour of the headers.
    """

    columns: Mapping[str, Metric]
    border_width: int = 2
    bg_color: Color = "black"
    font_size: int = 10
    font_color: Color = "white"

    @flax.struct.dataclass
    class State(TreeState["ImageGrid"]):
        """States of the columns."""

        def compute(self) -> np.ndarray:
            return _draw(self.parent, super().compute())

    def __post_init__(self) -> None:
        for color in (self.bg_color, self.font_color):
            _check_color(color)

    @classmethod
    def simple(
        cls,
        *,
        columns: Mapping[str, str],
        num_images: int = 5,
        in_vrange: tuple[float, float] | None = None,
        **kwargs: Any,
    ) -> Self:
        """A grid of plain images.

        Args:
          columns: From header to the key of images.
          num_images: Rows of the grid.
          in_vrange: Value range of the images.
          **kwargs: Other options of the grid.
        """
        shows = {
            name: ShowImages(images=key, num_images=num_images, in_vrange=in_vrange)
            for name, key in columns.items()
        }
        return cls(columns=shows, **kwargs)

    def __kontext_keys__(self) -> dict[str, Any]:
        return {
            f"{name}.{argument}": key
            for name, summary in self.columns.items()
            for argument, key in kontext.get_keypaths(summary).items()
        }

    def get_state(self, **inputs: Mapping[str, Any]) -> ImageGrid.State:
        """Return the state of one batch.

        Args:
          **inputs: From header to the arguments of its summary.
        """
        return self.State(
            tree={
                name: summary.get_state(**inputs[name])
                for name, summary in self.columns.items()
            }
        )

    def get_state_from_context(self, context: Any) -> ImageGrid.State:
        tree = {
            name: summary.get_state_from_context(context)
            for name, summary in self.columns.items()
        }
        return self.State(tree=tree, parent=self)


#
# Drawing
#


def _draw(grid: ImageGrid, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    pieces = [_draw_column(grid, name, columns[name]) for name in grid.columns]
    height = max((piece.shape[0] for piece in pieces), default=0)
    background = to_rgb(grid.bg_color)
    padded = []
    for piece in pieces:
        canvas = np.broadcast_to(background, (height, piece.shape[1], 3)).copy()
        canvas[: piece.shape[0]] = piece
        padded.append(canvas)
    return np.concatenate(padded, axis=1)[None].astype(np.float32)


def _draw_column(grid: ImageGrid, name: str, images: np.ndarray) -> np.ndarray:
    """Draw a header above images, each with a border."""
    border = grid.border_width
    images = np.broadcast_to(images, (*images.shape[:-1], 3))
    header = _draw_text(grid, name)
    width = max(images.shape[2], header.shape[1]) + 2 * border
    rows = [header, *images]
    height = sum(row.shape[0] + border for row in rows) + border
    column = np.broadcast_to(to_rgb(grid.bg_color), (height, width, 3)).copy()
    top = border
    for row in rows:
        left = (width - row.shape[1]) // 2
        column[top : top + row.shape[0], left : left + row.shape[1]] = row
        top += row.shape[0] + border
    return column


def _draw_text(grid: ImageGrid, text: str) -> np.ndarray:
    pil = _import_pillow()
    font = pil.ImageFont.load_default(size=grid.font_size)
    left, top, right, bottom = font.getbbox(text)
    size = (int(right - min(left, 0)) + 1, int(bottom - min(top, 0)) + 1)
    colors = [
        tuple((255 * to_rgb(color)).round().astype(int).tolist())
        for color in (grid.bg_color, grid.font_color)
    ]
    image = pil.Image.new("RGB", size, colors[0])
    pil.ImageDraw.Draw(image).text((0, 0), text, font=font, fill=colors[1])
    return np.asarray(image, np.float32) / 255


def _import_pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageColor
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError as error:
        raise ImportError(
            'ImageGrid needs pillow: `pip install "kauldron[images]"`.'
        ) from error
    return PIL


#
# Colours
#


def _check_color(color: Any) -> None:
    is_number = isinstance(color, int | float) and 0 <= color <= 1
    is_triple = isinstance(color, tuple) and len(color) == 3
    if not (isinstance(color, str) or is_number or is_triple):
        raise ValueError(
            f"{color!r} is not a colour: give a name, a hex code, three numbers, or one"
            " number in [0, 1]."
        )


def to_rgb(color: Color) -> np.ndarray:
    """Convert a colour to three floats in [0, 1].

    Example:
      >>> to_rgb((255, 0, 51)).round(2).tolist()
      [1.0, 0.0, 0.2]
      >>> to_rgb(0.5).tolist()
      [0.5, 0.5, 0.5]
    """
    if isinstance(color, str):
        pil = _import_pillow()
        return np.array(pil.ImageColor.getrgb(color)[:3]) / 255
    if isinstance(color, int | float):
        return np.full(3, float(color))
    parts = np.asarray(color)
    is_bytes = all(isinstance(part, int) for part in color)
    return parts / 255 if is_bytes else parts.astype(float)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class ShowVideosAsGif(Metric):
    """The first videos, as uint8 of shape `n t h w 3`.

    Attributes:
      videos: Float or uint8 videos of shape `*b t h w 1|3`.
      num_videos: How many to keep; `None` keeps all.
      in_vrange: Value range to clip to and to map to [0, 1].
      save_format: Which kind of animated image a writer makes: `"GIF"`, `"WEBP"` or
        `"PNG"`.
      frame_duration_ms: How long it shows a frame.
    """

    videos: kontext.Key = kontext.REQUIRED
    num_videos: int | None = 4
    in_vrange: tuple[float, float] | None = None
    save_format: str = "GIF"
    frame_duration_ms: int = 100

    def __post_init__(self) -> None:
        check_vrange(self.in_vrange, name="in_vrange")

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["ShowVideosAsGif"]):
        """The kept videos, `n t h w c`."""

        videos: Any = truncate_field(num_field="parent.num_videos")

        def compute(self) -> np.ndarray:
            videos = to_unit_range(self.videos)
            videos = np.broadcast_to(videos, (*videos.shape[:-1], 3))
            return (videos * 255).round().astype(np.uint8)

    @typechecked
    def get_state(self, videos: Array["*b t h w c"]) -> ShowVideosAsGif.State:
        check_channels(videos, (1, 3), name="ShowVideosAsGif")
        videos = jnp.reshape(videos, (-1, *videos.shape[-4:]))[: self.num_videos]
        return self.State(videos=rescale(as_float(videos), self.in_vrange))
