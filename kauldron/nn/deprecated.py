"""An older Vision Transformer with other parameter names, for its checkpoints."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import flax.linen as nn
import jax.numpy as jnp

from kauldron import kontext
from kauldron.ktyping import Float, typechecked
from kauldron.nn.attention import dot_product_attention_weights
from kauldron.nn.embeddings import LearnedEmbedding
from kauldron.nn.properties import interms_property
from kauldron.nn.protocols import PositionEmbedding
from kauldron.nn.vit import ViTSpec


class ImprovedMHDPAttention(nn.Module):
    """Deprecated: use `kd.nn.ImprovedMultiHeadDotProductAttention`.

    Attributes:
      num_heads: Number of heads.
      qk_size: Features of queries and keys, over all heads.
      v_size: Features of the values, over all heads; by default `qk_size`.
      softmax_axis: The axes over which weights sum to one.
    """

    num_heads: int
    qk_size: int
    v_size: int | None = None
    softmax_axis: int | Sequence[int] = -1

    interms = interms_property()

    @nn.compact
    @typechecked
    def __call__(
        self, inputs_q: Float["*b q dq"], inputs_kv: Float["*b kv dk"]
    ) -> Float["*b q dq"]:
        v_size = self.v_size or self.qk_size
        query = self._heads("query", inputs_q, self.qk_size)
        key = self._heads("key", inputs_kv, self.qk_size)
        value = self._heads("value", inputs_kv, v_size)
        query = nn.RMSNorm(name="norm_query")(query)
        key = nn.RMSNorm(name="norm_key")(key)
        weights = dot_product_attention_weights(
            query, key, softmax_axis=self.softmax_axis
        )
        self.interms["attention"] = weights
        mixed = jnp.einsum("...hqk,...khd->...qhd", weights, value)
        return nn.DenseGeneral(inputs_q.shape[-1], axis=(-2, -1), name="dense_out")(
            mixed
        )

    def _heads(self, name: str, inputs: Any, features: int) -> Any:
        return nn.DenseGeneral(
            (self.num_heads, features // self.num_heads),
            use_bias=False,
            name=f"dense_{name}",
        )(inputs)


class ParallelSelfAttentionBlock(nn.Module):
    """Deprecated: use `kd.nn.ParallelAttentionBlock`.

    Attributes:
      mlp_size: Features inside the MLP.
      num_heads: Number of heads.
      qk_size: Features of queries and keys, over all heads.
      softmax_axis: The axes over which weights sum to one.
    """

    mlp_size: int
    num_heads: int
    qk_size: int
    softmax_axis: int | Sequence[int] = -1

    @nn.compact
    @typechecked
    def __call__(self, tokens: Float["*b n d"]) -> Float["*b n d"]:
        normed = nn.RMSNorm(name="norm_in")(tokens)
        attention = ImprovedMHDPAttention(
            num_heads=self.num_heads,
            qk_size=self.qk_size,
            softmax_axis=self.softmax_axis,
            name="MHDPA",
        )
        hidden = nn.gelu(nn.Dense(self.mlp_size, name="MLP_in")(normed))
        mixed = nn.Dense(tokens.shape[-1], name="MLP_out")(hidden)
        return tokens + mixed + attention(normed, normed)


class VitEncoder(nn.Module):
    """Deprecated: use `kd.nn.VitEncoder`.

    Attributes:
      patch_size: Height and width of a patch.
      hidden_size: Features of a token.
      num_layers: Number of blocks.
      block_template: The block, of which each layer is a copy.
      pos_embedding: Added to the tokens.
      images: Key of the images.
    """

    patch_size: tuple[int, int]
    hidden_size: int
    num_layers: int
    block_template: nn.Module
    pos_embedding: PositionEmbedding = dataclasses.field(
        default_factory=lambda: LearnedEmbedding(parent=None)
    )
    images: kontext.Key = "batch.image"

    @nn.compact
    @typechecked
    def __call__(self, images: Float["*b h w c"]) -> Float["*b n d"]:
        _warn("VitEncoder")
        patches = nn.Conv(
            self.hidden_size,
            kernel_size=self.patch_size,
            strides=self.patch_size,
            padding="VALID",
            name="patchifier",
        )(images)
        tokens = patches.reshape(*patches.shape[:-3], -1, self.hidden_size)
        tokens = tokens + self.pos_embedding(tokens.shape, axis=-2)
        for i in range(self.num_layers):
            tokens = self.block_template.clone(parent=self, name=f"layer_{i}")(tokens)
        return nn.RMSNorm(name="norm_encoder")(tokens)

    @classmethod
    def from_variant_str(cls, variant: str, **block_kwargs: Any) -> Self:
        """Return an encoder by name.

        Args:
          variant: Such as `"B/16"`; patches are 16 pixels wide by default.
          **block_kwargs: Arguments of the blocks.

        Returns:
          The encoder.
        """
        spec = ViTSpec.from_variant_string(variant)
        patch_size = spec.patch_size or 16
        sizes = {
            "mlp_size": spec.mlp_size,
            "num_heads": spec.num_heads,
            "qk_size": spec.hidden_size,
        }
        return cls(
            patch_size=(patch_size, patch_size),
            hidden_size=spec.hidden_size,
            num_layers=spec.num_layers,
            block_template=ParallelSelfAttentionBlock(**sizes | block_kwargs),
        )


class Vit(nn.Module):
    """Deprecated: use `kd.nn.Vit`.

    Attributes:
      encoder: From images to tokens.
      num_classes: Number of classes.
      image: Key of the images.
      init_head_bias: Initialiser of the last bias.
    """

    encoder: nn.Module
    num_classes: int = 1000
    image: kontext.Key = "batch.image"
    init_head_bias: Callable[..., Any] = nn.initializers.zeros_init()

    @nn.compact
    @typechecked
    def __call__(self, image: Float["*b h w c"]) -> dict[str, Any]:
        _warn("Vit")
        features = jnp.mean(self.encoder(image), axis=-2)
        features = jnp.tanh(nn.Dense(features.shape[-1], name="pre_logits")(features))
        head = nn.Dense(
            self.num_classes, bias_init=self.init_head_bias, name="classifier_head"
        )
        return {"logits": head(features)}


def _warn(name: str) -> None:
    warnings.warn(
        f"kauldron.modules.deprecated.{name} is deprecated: use kd.nn.{name}.",
        DeprecationWarning,
        stacklevel=3,
    )
