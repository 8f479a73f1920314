"""How well features carry the segmentation of a video from frame to frame."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from kauldron import kontext
from kauldron.ktyping import Float, typechecked
from kauldron.metrics import AutoState, Metric, sum_field

_CONTEXT_FRAMES = 20
_NUM_NEIGHBOURS = 7
_TEMPERATURE = 0.7


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class SegmentationJaccard(Metric):
    """Jaccard index of labels that similar features carry through a video.

    The labels of the first frame are given. Each cell of a later frame takes the mean of
    the labels of the cells most like it, in the first frame and the last 20 ones. The
    result is compared with the true labels, leaving out the first and the last frame, and
    averaged over classes and videos.

    Attributes:
      features: Features of shape `*b t k d`; the `k` cells are those of a grid of
        patches, row by row.
      gt_segmentations: True labels of shape `*b t h w`; 0 is the background.
      patch_size: Height and width of a patch.
      n_max_class: Largest label.
      resolution: Height and width of the images that the features were computed from.
      radius: Compare cells only with those of later frames at most that many cells away;
        `None` for all.

    References:
      Jabri et al., [Space-time correspondence as a contrastive random
      walk](https://arxiv.org/abs/2006.14613), 2020
    """

    features: kontext.Key = kontext.REQUIRED
    gt_segmentations: kontext.Key = kontext.REQUIRED
    patch_size: tuple[int, int] = (16, 16)
    n_max_class: int = 10
    resolution: tuple[int, int] = (480, 880)
    radius: int | None = None

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["SegmentationJaccard"]):
        """Sum of the indices of the videos, and the number of videos."""

        total: Any = sum_field()
        count: Any = sum_field()

        def compute(self) -> Any:
            return self.total / jnp.maximum(self.count, 1)

    @typechecked
    def get_state(
        self, features: Float["*b t k d"], gt_segmentations: Float["*b t h w"]
    ) -> SegmentationJaccard.State:
        if features.shape[-2] != self._grid[0] * self._grid[1]:
            raise ValueError(
                f"{features.shape[-2]} cells do not fill the grid of {self._grid} patches "
                f"that resolution={self.resolution} and patch_size={self.patch_size} give."
            )
        if features.shape[-3] < 3:
            raise ValueError(
                "The first and the last frame do not count, so there must be at least 3 "
                f"frames, got {features.shape[-3]}."
            )
        values = jax.lax.map(
            lambda pair: self._of_video(*pair),
            (
                features.reshape(-1, *features.shape[-3:]),
                gt_segmentations.reshape(-1, *gt_segmentations.shape[-3:]),
            ),
        )
        return self.State(total=values.sum(), count=jnp.float32(len(values)))

    @functools.cached_property
    def _grid(self) -> tuple[int, int]:
        (height, width), (patch_height, patch_width) = self.resolution, self.patch_size
        return height // patch_height, width // patch_width

    def _of_video(self, features: jax.Array, truth: jax.Array) -> jax.Array:
        features = features / jnp.linalg.norm(features, axis=-1, keepdims=True)
        heat_maps = self._propagate(features, self._first_heat_map(truth[0]))
        predicted = jnp.argmax(_resize(heat_maps, self.resolution, "linear"), axis=-1)
        predicted = _resize(predicted[..., None], truth.shape[1:], "nearest")[..., 0]
        return self._jaccard(predicted[1:-1], truth[1:-1], num_classes=truth.max())

    def _first_heat_map(self, labels: jax.Array) -> jax.Array:
        """The share of each label in each cell, `k n`."""
        labels = _resize(labels[None, ..., None], self.resolution, "nearest")[..., 0]
        shares = jax.nn.one_hot(labels.astype(jnp.int32), self.n_max_class + 1)
        return _resize(shares, self._grid, "linear").reshape(-1, self.n_max_class + 1)

    def _propagate(self, features: jax.Array, first: jax.Array) -> jax.Array:
        """The heat maps of all frames, `t h w n`."""

        def next_frame(queue: Any, frame: jax.Array) -> tuple[Any, jax.Array]:
            past, past_labels = queue
            cells = jnp.concatenate([features[0], past.reshape(-1, past.shape[-1])])
            labels = jnp.concatenate([first, past_labels.reshape(-1, first.shape[-1])])
            similarity = frame @ cells.T / _TEMPERATURE
            if self.radius is not None:
                similarity = jnp.where(self._is_near(), similarity, -jnp.inf)
            best, places = jax.lax.top_k(similarity, _NUM_NEIGHBOURS)
            weights = jax.nn.softmax(best, axis=-1)
            heat_map = jnp.einsum("kn,knc->kc", weights, labels[places])
            queue = (
                jnp.concatenate([past[1:], frame[None]]),
                jnp.concatenate([past_labels[1:], heat_map[None]]),
            )
            return queue, heat_map

        start = [
            jnp.repeat(x[None], _CONTEXT_FRAMES, axis=0) for x in (features[0], first)
        ]
        _, heat_maps = jax.lax.scan(next_frame, tuple(start), features)
        return heat_maps.reshape(len(features), *self._grid, -1)

    def _is_near(self) -> jax.Array:
        """Which cells of the context each cell may look at; all of the first frame."""
        rows, columns = jnp.indices(self._grid).reshape(2, -1)
        distance = jnp.maximum(
            abs(rows[:, None] - rows), abs(columns[:, None] - columns)
        )
        near = jnp.tile(distance <= self.radius, (1, _CONTEXT_FRAMES))
        return jnp.concatenate([jnp.ones_like(distance, dtype=bool), near], axis=1)

    def _jaccard(
        self, predicted: jax.Array, truth: jax.Array, *, num_classes: jax.Array
    ) -> jax.Array:
        classes = jnp.arange(1, self.n_max_class + 1)
        a = predicted[..., None] == classes
        b = truth[..., None] == classes
        common, either = (a & b).sum((1, 2)), (a | b).sum((1, 2))
        index = jnp.where(either > 0, common / jnp.maximum(either, 1), 1.0).mean(0)
        counted = classes <= num_classes
        return (index * counted).sum() / jnp.maximum(counted.sum(), 1)


def _resize(images: jax.Array, size: tuple[int, ...], method: str) -> jax.Array:
    """Resize images `n h w c`, without anti-aliasing."""
    shape = (images.shape[0], *size, images.shape[-1])
    return jax.image.resize(images, shape, method, antialias=False)
