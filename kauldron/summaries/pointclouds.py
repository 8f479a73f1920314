"""Clouds of points, with or without colours."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.struct
import numpy as np

from kauldron import kontext
from kauldron.immutabledict import ImmutableDict
from kauldron.ktyping import Array, typechecked
from kauldron.metrics.auto_state import AutoState, concat_field
from kauldron.metrics.metric import Metric
from kauldron.summaries.images import rearrange

DEFAULT_CONFIGS = ImmutableDict(
    camera=ImmutableDict(cls="PerspectiveCamera", near=1e-4),
    material=ImmutableDict(cls="PointsMaterial", size=0.03),
)
"""A perspective camera and small points, for viewers that take such settings."""


@dataclasses.dataclass(frozen=True, eq=False)
class PointCloud:
    """Points for a writer.

    Attributes:
      point_clouds: Coordinates, `n 3`.
      point_colors: Colours, `n 3`, or `None`.
      configs: Settings of the viewer.
    """

    point_clouds: np.ndarray
    point_colors: np.ndarray | None = None
    configs: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class ShowPointCloud(Metric):
    """A cloud of points, with or without colours.

    Attributes:
      point_clouds: Coordinates; `n 3` after rearranging, by default flattened.
      point_colors: Colours of the points, of the same shape.
      configs: Settings of the viewer.
      rearrange: einops pattern whose result is `n 3`.
      rearrange_kwargs: Sizes of named axes of the pattern.
      num_points: How many points of each batch to keep; `None` keeps all.
    """

    point_clouds: kontext.Key = kontext.REQUIRED
    point_colors: kontext.Key | None = None
    configs: Mapping[str, Any] | None = None
    rearrange: str | None = None
    rearrange_kwargs: Mapping[str, int] | None = dataclasses.field(
        default_factory=ImmutableDict
    )
    num_points: int | None = None

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["ShowPointCloud"]):
        """The kept points."""

        point_clouds: Any = concat_field()
        point_colors: Any = concat_field(default=None)

        def compute(self) -> PointCloud:
            configs, colors = self.parent.configs, self.point_colors
            return PointCloud(
                point_clouds=np.asarray(self.point_clouds, np.float32),
                point_colors=None if colors is None else np.asarray(colors),
                configs=DEFAULT_CONFIGS if configs is None else configs,
            )

    @typechecked
    def get_state(
        self, point_clouds: Array["*any"], point_colors: Array["*any"] | None = None
    ) -> ShowPointCloud.State:
        return self.State(
            point_clouds=self._prepare(point_clouds),
            point_colors=None if point_colors is None else self._prepare(point_colors),
        )

    def _prepare(self, points: Any) -> Any:
        arranged = rearrange(self, points, default="... c -> (...) c")
        if arranged.ndim != 2 or arranged.shape[1] != 3:
            raise ValueError(
                "ShowPointCloud: points and colours must have the shape `n 3`, but have"
                f" {arranged.shape} (rearrange={self.rearrange!r})."
            )
        return arranged[: self.num_points]
