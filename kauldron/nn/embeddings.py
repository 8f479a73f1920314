"""From images to tokens, and where each token is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from kauldron.ktyping import Float, typechecked
from kauldron.nn.protocols import PositionEmbedding

#
# Patches
#


class Patchify(nn.Module):
    """Cuts images into patches, row by row; each is flattened as it lies in memory.

    Attributes:
      patch_size: Height and width of a patch.

    Example:
      >>> Patchify(patch_size=(4, 4)).apply({}, jnp.ones((2, 8, 12, 3))).shape
      (2, 6, 48)
    """

    patch_size: tuple[int, int]

    def __post_init__(self) -> None:
        self.patch_size = _pair(self.patch_size)
        super().__post_init__()

    @nn.compact
    @typechecked
    def __call__(self, images: Float["*b h w c"]) -> Float["*b n d"]:
        (height, width), (rows, columns) = images.shape[-3:-1], self.patch_size
        if height % rows or width % columns:
            raise ValueError(
                f"Patchify: images of {height} x {width} pixels cannot be cut into "
                f"patches of {rows} x {columns}."
            )
        return einops.rearrange(
            images,
            "... (h ph) (w pw) c -> ... (h w) (ph pw c)",
            ph=rows,
            pw=columns,
        )


class PatchifyEmbed(nn.Module):
    """Cuts images into patches and projects each, in the dtype of the images.

    What does not fill a patch at the bottom and on the right is left out.

    Attributes:
      patch_size: Height and width of a patch.
      hidden_size: Features of a token.
    """

    patch_size: tuple[int, int]
    hidden_size: int

    def __post_init__(self) -> None:
        self.patch_size = _pair(self.patch_size)
        super().__post_init__()

    @nn.compact
    @typechecked
    def __call__(self, images: Float["*b h w c"]) -> Float["*b n d"]:
        patches = nn.Conv(
            self.hidden_size,
            kernel_size=self.patch_size,
            strides=self.patch_size,
            padding="VALID",
            dtype=images.dtype,
            conv_general_dilated=_convolve_patches,
            name="patchifier",
        )(images)
        return einops.rearrange(patches, "... h w d -> ... (h w) d")


def _convolve_patches(images: Any, kernel: Any, *_: Any, **options: Any) -> Any:
    """Convolve with a stride as large as the kernel.

    The rows of a patch count as channels: three channels are padded by cuDNN, which then
    takes 3 % of the step of a ViT-B. A product of matrices would cost 9 %: without a
    convolution, XLA lays out all tokens with the batch as the last axis.
    """
    rows, columns, _, _ = kernel.shape
    height = images.shape[1] // rows * rows
    return jax.lax.conv_general_dilated(
        einops.rearrange(images[:, :height], "b (h r) w c -> b h w (r c)", r=rows),
        einops.rearrange(kernel, "r k c d -> 1 k (r c) d"),
        window_strides=(1, columns),
        padding="VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=options.get("precision"),
    )


def _pair(patch_size: Sequence[int]) -> tuple[int, int]:
    height, width = patch_size
    return (height, width)


#
# Positions
#


class LearnedEmbedding(nn.Module):
    """A parameter for each position.

    Attributes:
      dtype: Dtype of the parameter.
      emb_init: Its initialiser.
      emb_name: Its name.
    """

    dtype: Any = jnp.float32
    emb_init: Callable[..., Any] = nn.initializers.normal(stddev=0.02)
    emb_name: str = "embeddings"

    @nn.compact
    def __call__(self, shape: Sequence[int], *, axis: int | Sequence[int]) -> jax.Array:
        """Return the embeddings.

        Args:
          shape: Shape of the tokens.
          axis: The axes (negative numbers) along which positions differ.

        Returns:
          An array of that shape.
        """
        shape_of_param = _embedding_shape(shape, axis)
        param = self.param(self.emb_name, self.emb_init, shape_of_param, self.dtype)
        return jnp.broadcast_to(param, shape)


class FourierEmbedding(nn.Module):
    """Projects sines and cosines of the position, which is from -pi to pi on each axis.

    Attributes:
      num_fourier_bases: How many frequencies; each is twice the one before.
    """

    num_fourier_bases: int

    @nn.compact
    def __call__(self, shape: Sequence[int], *, axis: int | Sequence[int]) -> jax.Array:
        """Return the embeddings.

        Args:
          shape: Shape of the tokens.
          axis: The axes (negative numbers) along which positions differ.

        Returns:
          An array of that shape.
        """
        positions = _embedding_shape(shape, axis)[:-1]
        sizes = [size for size in positions if size > 1]
        if sizes:
            axes = [jnp.linspace(-jnp.pi, jnp.pi, size) for size in sizes]
            grid = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1)
            grid = grid.reshape(*positions, len(sizes))
        else:  # a single position
            grid = jnp.zeros((len(_axes(axis)),))
        features = convert_to_fourier_features(grid, self.num_fourier_bases)
        return jnp.broadcast_to(nn.Dense(shape[-1], name="dense_pe")(features), shape)


class ZeroEmbedding(nn.Module):
    """No information about positions.

    Attributes:
      dtype: Dtype of the zeros.
    """

    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, shape: Sequence[int], *, axis: int | Sequence[int] | None = None
    ) -> jax.Array:
        """Return zeros of a shape; the axes do not matter."""
        del axis
        return jnp.zeros(shape, self.dtype)


class AddEmbedding(nn.Module):
    """Adds a position embedding to its input, in the dtype of the input.

    Attributes:
      emb: The embedding.
      axis: The axes (negative numbers) along which positions differ.
    """

    emb: PositionEmbedding
    axis: int | Sequence[int]

    def __post_init__(self) -> None:
        if not isinstance(self.axis, int):
            self.axis = tuple(self.axis)
        super().__post_init__()

    @nn.compact
    @typechecked
    def __call__(self, inputs: Float["*b d"]) -> Float["*b d"]:
        return inputs + self.emb(inputs.shape, axis=self.axis).astype(inputs.dtype)


class AddLearnedEmbedding(nn.Module):
    """Deprecated: use `AddEmbedding(emb=LearnedEmbedding(), axis=...)`.

    Attributes:
      emb_init: Initialiser of the parameter.
      axes: The axes of the parameter, the features (-1) among them.
    """

    emb_init: Callable[..., Any] = nn.initializers.normal(stddev=0.02)
    axes: Sequence[int] = (-2, -1)

    def __post_init__(self) -> None:
        self.axes = tuple(self.axes)
        super().__post_init__()

    @nn.compact
    @typechecked
    def __call__(self, inputs: Float["*b n d"]) -> Float["*b n d"]:
        warnings.warn(
            "kd.nn.AddLearnedEmbedding is deprecated: use "
            "kd.nn.AddEmbedding(emb=kd.nn.LearnedEmbedding(), axis=-2).",
            DeprecationWarning,
            stacklevel=2,
        )
        shape = _shape_along(inputs.shape, self.axes)
        param = self.param("embeddings", self.emb_init, shape, inputs.dtype)
        return inputs + param


def _embedding_shape(
    shape: Sequence[int], axis: int | Sequence[int]
) -> tuple[int, ...]:
    """Return the shape of an embedding: 1 on axes that do not matter, none in front."""
    axes = _axes(axis)
    for wrong in axes:
        if wrong >= 0:
            raise ValueError(
                f"axis={axis}: axes of position embeddings are counted from the end; "
                f"for tokens of shape {tuple(shape)} write {wrong - len(shape)}."
            )
    if -1 in axes:
        raise ValueError(
            f"axis={axis}: the last axis holds the features, and always has entries of "
            "its own. Leave -1 out."
        )
    return _shape_along(shape, (*axes, -1))


def _shape_along(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    kept = [shape[a] if a in axes else 1 for a in range(-len(shape), 0)]
    while len(kept) > 1 and kept[0] == 1:
        del kept[0]
    return tuple(kept)


def _axes(axis: int | Sequence[int]) -> tuple[int, ...]:
    return (axis,) if isinstance(axis, int | np.integer) else tuple(axis)


@typechecked
def convert_to_fourier_features(
    inputs: Float["*b D"],
    basis_degree: int,
    precision: Any = jax.lax.Precision.HIGHEST,
) -> Float["*b d"]:
    """Return sines and cosines of multiples of the inputs.

    Args:
      inputs: Angles, from -pi to pi or from 0 to 2 pi.
      basis_degree: How many multiples: 1, 2, 4, ...
      precision: Accepted for older code; products are exact.

    Returns:
      First all sines, then all cosines; of each, first all inputs times 1, then all
      inputs times 2, and so on.

    Example:
      >>> convert_to_fourier_features(jnp.zeros((5, 2)), basis_degree=3)[0].tolist()
      [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    del precision
    scaled = jnp.concatenate([2**i * inputs for i in range(basis_degree)], axis=-1)
    return jnp.sin(jnp.concatenate([scaled, scaled + jnp.pi / 2], axis=-1))
