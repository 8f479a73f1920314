"""Random parts of sequences and of sets of tokens, and the picture that is left."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import einops
import numpy as np

from kauldron.contrib.data.arrays import check_probability, takes_tensor_fields
from kauldron.data.transforms import (
    ElementWiseRandomTransform,
    MapTransform,
    RandomMapTransform,
)
from kauldron.data.transforms.fields import check_has_fields
from kauldron.data.transforms.values import as_array


@takes_tensor_fields("key")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomSubsetAlongAxis(ElementWiseRandomTransform):
    """Keeps some entries of an axis, drawn without repetition, in random order.

    Attributes:
      key: The field or fields; those of one length keep the same entries.
      num_to_keep: How many entries to keep.
      axis: Which axis, of a record.

    Example:
      >>> subset = RandomSubsetAlongAxis(key="x", num_to_keep=3)
      >>> subset({"x": np.arange(10)}, np.random.default_rng(0))["x"]
      array([4, 6, 2])
    """

    num_to_keep: int
    axis: int = 0

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        array = as_array(element)
        if not -array.ndim <= self.axis < array.ndim:
            raise IndexError(
                f"RandomSubsetAlongAxis(axis={self.axis}): shape is {array.shape}."
            )
        size = array.shape[self.axis]
        if not 0 <= self.num_to_keep <= size:
            raise ValueError(
                f"RandomSubsetAlongAxis(num_to_keep={self.num_to_keep}): there are"
                f" {size} entries."
            )
        return array.take(rng.permutation(size)[: self.num_to_keep], axis=self.axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TokenTransform(RandomMapTransform):
    key: str
    drop_ratio: float
    shuffle_tokens: bool = True

    def __post_init__(self) -> None:
        check_probability(self, "drop_ratio")

    def _field(self, features: Mapping[str, Any], name: str) -> Any:
        check_has_fields(features, [name], self)
        return as_array(features[name])

    def _draw(
        self, candidates: np.ndarray, num_kept: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Return the kept ones of the candidates, in random order if there is a choice."""
        if len(candidates) < num_kept:
            raise ValueError(
                f"{type(self).__name__}: cannot keep {num_kept} of {len(candidates)}"
                " tokens."
            )
        if self.shuffle_tokens and self.drop_ratio:
            candidates = rng.permutation(candidates)
        return candidates[:num_kept]


@takes_tensor_fields("key", "key_exclude_indices")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomDropTokens(_TokenTransform):
    """Drops a part of the tokens, and adds which were kept as `<key>_indices`.

    Attributes:
      key: The field with tokens, `(n, c)` or `(b, n, c)`.
      key_exclude_indices: A field with the tokens to drop in any case, `(e,)` or
        `(b, e)`.
      drop_ratio: Part to drop, from 0 to 1.
      shuffle_tokens: Whether the kept ones are drawn; else they are the first ones.
      offset_indices: Whether the indices count on through the elements of a batch.
      subsampling_pattern: `"random"`.

    Example:
      >>> drop = RandomDropTokens(key="x", drop_ratio=0.5, shuffle_tokens=False)
      >>> drop({"x": np.array([[5], [6]])}, np.random.default_rng(0))
      {'x': array([[5]]), 'x_indices': array([0], dtype=int32)}
    """

    key_exclude_indices: str | None = None
    subsampling_pattern: str = "random"
    offset_indices: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subsampling_pattern != "random":
            raise ValueError(
                f"RandomDropTokens(subsampling_pattern={self.subsampling_pattern!r}):"
                ' there is only "random".'
            )

    def random_map(
        self, features: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
        tokens = self._field(features, self.key)
        if tokens.ndim not in (2, 3):
            raise ValueError(
                "RandomDropTokens expects (n, c) or (b, n, c), got shape"
                f" {tokens.shape}."
            )
        size = tokens.shape[-2]
        num_kept = int(size * (1 - self.drop_ratio) + 1e-6)
        batch = tokens.reshape(-1, *tokens.shape[-2:])
        excluded = [()] * len(batch)
        if self.key_exclude_indices is not None:
            excluded = self._field(features, self.key_exclude_indices)
            excluded = excluded if tokens.ndim == 3 else [excluded]
        indices = np.stack(
            [
                self._draw(np.setdiff1d(np.arange(size), some), num_kept, rng)
                for some in excluded
            ]
        )
        kept = np.take_along_axis(batch, indices[..., None], axis=1)
        if self.offset_indices:
            indices = indices + size * np.arange(len(indices))[:, None]
        if tokens.ndim == 2:
            kept, indices = kept[0], indices[0]
        return {
            **features,
            self.key: kept,
            f"{self.key}_indices": indices.astype(np.int32),
        }


@takes_tensor_fields("key")
@dataclasses.dataclass(frozen=True, kw_only=True)
class SubsampleAndFlatten(_TokenTransform):
    """Makes the first axes one and keeps a part of it; `<key>_indices` says which.

    Attributes:
      key: The field.
      drop_ratio: Part of the sampled positions to drop, from 0 to 1.
      shuffle_tokens: Whether the kept ones are drawn; else they are the first ones.
      sample_dims: The axes over which positions are sampled. The other ones that are
        flattened are kept whole: with `(1, 2)` of `(t, h, w, c)`, tubes through time.
      flatten_up_to: How many axes to flatten.

    Example:
      >>> sample = SubsampleAndFlatten(key="x", drop_ratio=0.5, shuffle_tokens=False)
      >>> sample({"x": np.array([[5], [6]])}, np.random.default_rng(0))["x_indices"]
      array([0], dtype=int32)
    """

    sample_dims: tuple[int, ...] = (0,)
    flatten_up_to: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sample_dims", tuple(sorted(self.sample_dims)))
        if not all(0 <= dim < self.flatten_up_to for dim in self.sample_dims):
            raise ValueError(
                f"SubsampleAndFlatten(sample_dims={self.sample_dims}): expected axes"
                f" below flatten_up_to={self.flatten_up_to}."
            )

    def random_map(
        self, features: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
        array = self._field(features, self.key)
        if array.ndim < self.flatten_up_to:
            raise ValueError(
                f"SubsampleAndFlatten(flatten_up_to={self.flatten_up_to}): shape is"
                f" {array.shape}."
            )
        sizes = array.shape[: self.flatten_up_to]
        size = math.prod(sizes[dim] for dim in self.sample_dims)
        num_kept = size - int(size * self.drop_ratio)
        whole = [d for d in range(len(sizes)) if d not in self.sample_dims]
        # One row for each sampled position; in it the first whole axis varies fastest.
        positions = np.arange(math.prod(sizes)).reshape(sizes)
        positions = positions.transpose(*self.sample_dims, *reversed(whole))
        rows = self._draw(np.arange(size), num_kept, rng)
        indices = positions.reshape(size, -1)[rows].ravel()
        flat = array.reshape(-1, *array.shape[self.flatten_up_to :])
        return {
            **features,
            self.key: flat[indices],
            f"{self.key}_indices": indices.astype(np.int32),
        }


@takes_tensor_fields("sparse_patches_key", "indices_key")
@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedVideoVisualization(MapTransform):
    """Puts the patches that `RandomDropTokens` kept back into a video.

    Attributes:
      sparse_patches_key: The field with patches, `(n, pt * ph * pw * channels)`.
      indices_key: The field with their places in the flattened grid, `(n,)`.
      output_key: Where the video `(T * pt, H * ph, W * pw, channels)` goes.
      grid_shape: Number of patches `(T, H, W)`.
      patch_shape: Size of a patch, `(pt, ph, pw)`.
      fill_value: What stands where there is no patch.
      channels: Number of channels.
    """

    sparse_patches_key: str
    indices_key: str
    output_key: str
    grid_shape: tuple[int, int, int]
    patch_shape: tuple[int, int, int]
    fill_value: float = 0.5
    channels: int = 3

    def __post_init__(self) -> None:
        for name in ("grid_shape", "patch_shape"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        names = [self.sparse_patches_key, self.indices_key]
        check_has_fields(element, names, self)
        patches, indices = (as_array(element[name]) for name in names)
        size = math.prod(self.patch_shape) * self.channels
        if patches.shape[-1] != size:
            raise ValueError(
                f"MaskedVideoVisualization: patches of {self.patch_shape} with"
                f" {self.channels} channels have {size} entries, but the shape is"
                f" {patches.shape}."
            )
        grid = np.full((math.prod(self.grid_shape), size), self.fill_value)
        grid = grid.astype(patches.dtype)
        grid[indices] = patches
        sizes = dict(zip("TH", self.grid_shape), **dict(zip("tyx", self.patch_shape)))
        pattern = "(T H W) (t y x c) -> (T t) (H y) (W x) c"
        video = einops.rearrange(grid, pattern, c=self.channels, **sizes)
        return {**element, self.output_key: video}
