"""Videos for writers that make animated images of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, typechecked
from kauldron.metrics import AutoState, Metric, truncate_field
from kauldron.metrics.image import check_vrange
from kauldron.summaries.images import (
    as_float,
    check_channels,
    rescale,
    to_unit_range,
)


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
