"""The Vision Transformer (Dosovitskiy et al. 2021)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, get_args

import flax.linen as nn
import jax.numpy as jnp

from kauldron import kontext
from kauldron.errors import did_you_mean
from kauldron.ktyping import Bool, Float, typechecked
from kauldron.nn.attention import Implementation, ImprovedMultiHeadDotProductAttention
from kauldron.nn.embeddings import LearnedEmbedding, PatchifyEmbed
from kauldron.nn.layer_stack import Remat, ScannedLayers, remat_policy
from kauldron.nn.protocols import (
    ImageTokenizer,
    NormModule,
    PositionEmbedding,
    TransformerBlock,
)
from kauldron.nn.transformers import PreNormBlock, TransformerMLP

#
# Sizes
#


@dataclasses.dataclass(frozen=True)
class ViTSpec:
    """Sizes of a Vision Transformer.

    Attributes:
      hidden_size: Features of a token.
      num_layers: Number of blocks.
      mlp_size: Features inside the MLPs.
      num_heads: Number of attention heads.
      patch_size: Side of a patch, if known.
    """

    hidden_size: int
    num_layers: int
    mlp_size: int
    num_heads: int
    patch_size: int | None = None

    @classmethod
    def from_variant_string(cls, variant: str) -> ViTSpec:
        """Return the sizes that a name stands for.

        Args:
          variant: Such as `"B/16"`, `"ViT-L"`, `"vit_Ti/8"`.

        Returns:
          The sizes.

        Example:
          >>> ViTSpec.from_variant_string("ViT-B/16").hidden_size
          768
        """
        match = re.fullmatch(
            r"(?:[vV][iI][tT][-_])?([a-zA-Z]{1,2})(?:/(\d+))?", variant
        )
        if match is None:
            raise ValueError(
                f"{variant!r} is not the name of a ViT: expected '<variant>' or "
                f"'<variant>/<patch size>', such as 'B/16'. Variants: {_variants()}."
            )
        name, patch_size = match.groups()
        if name not in VIT_SIZES:
            raise ValueError(
                f"Unknown ViT variant {name!r} in {variant!r}."
                f"{did_you_mean(name, VIT_SIZES)} Variants: {_variants()}."
            )
        return dataclasses.replace(
            VIT_SIZES[name], patch_size=int(patch_size) if patch_size else None
        )

    @property
    def kwargs(self) -> dict[str, int]:
        """The sizes by name, without a patch size that is not known."""
        sizes = dataclasses.asdict(self)
        return {name: size for name, size in sizes.items() if size is not None}


VIT_SIZES = {
    "mu": ViTSpec(32, 1, 128, 2),
    "Ti": ViTSpec(192, 12, 768, 3),
    "S": ViTSpec(384, 12, 1536, 6),
    "M": ViTSpec(512, 12, 2048, 8),
    "B": ViTSpec(768, 12, 3072, 12),
    "L": ViTSpec(1024, 24, 4096, 16),
    "H": ViTSpec(1280, 32, 5120, 16),
    "g": ViTSpec(1408, 40, 6144, 16),
    "G": ViTSpec(1664, 48, 8192, 16),
    "e": ViTSpec(1792, 56, 15360, 16),
}


def _variants() -> str:
    return ", ".join(VIT_SIZES)


#
# Models
#


class VitEncoder(nn.Module):
    """From images to tokens that have seen the whole image, in the dtype of the images.

    Attributes:
      layers: The blocks, or `ScannedLayers` of one.
      embedding: From images to tokens.
      pos_embedding: Added to the tokens. By default learned.
      encoder_norm: After the last block; `None` for none. By default an RMSNorm.
      prepend_cls_token: Whether to put a learned token in front of the others. It has
        no position embedding.
      cls_token_init: Initialiser of that token.
      image: Key of the images.

    References:
      Dosovitskiy et al., [An Image is Worth 16x16
      Words](https://arxiv.org/abs/2010.11929), 2021

    Example:
      >>> import jax
      >>> from kauldron import kd
      >>> encoder = kd.nn.VitEncoder.from_variant_str("mu/4")
      >>> init = encoder.init_with_output
      >>> tokens, _ = jax.eval_shape(init, jax.random.key(0), jnp.ones((2, 8, 8, 3)))
      >>> tokens.shape
      (2, 4, 32)
    """

    layers: Sequence[TransformerBlock] | ScannedLayers
    embedding: ImageTokenizer
    # Made for each encoder, outside of any module around it: not shared.
    pos_embedding: PositionEmbedding = dataclasses.field(
        default_factory=lambda: LearnedEmbedding(parent=None)
    )
    encoder_norm: NormModule | None = dataclasses.field(
        default_factory=lambda: nn.RMSNorm(parent=None)
    )
    prepend_cls_token: bool = False
    cls_token_init: Callable[..., Any] = nn.initializers.zeros_init()
    image: kontext.Key = kontext.REQUIRED

    @nn.compact
    @typechecked
    def __call__(
        self,
        image: Float["*b h w c"],
        attention_mask: Bool["*#b #heads #n #n"] | Bool["#heads #n #n"] | None = None,
    ) -> Float["*b n d"]:
        """Encode.

        Args:
          image: The images.
          attention_mask: Which tokens may look at which, the class token included.

        Returns:
          The tokens, the class token first.
        """
        tokens = self.embedding(image)
        positions = self.pos_embedding(tokens.shape, axis=-2)
        tokens = tokens + positions.astype(tokens.dtype)
        if self.prepend_cls_token:
            cls = self.param("cls", self.cls_token_init, tokens.shape[-1:])
            cls = jnp.broadcast_to(cls, (*tokens.shape[:-2], 1, tokens.shape[-1]))
            tokens = jnp.concatenate([cls.astype(tokens.dtype), tokens], axis=-2)
        masks = {} if attention_mask is None else {"attention_mask": attention_mask}
        layers = self.layers if isinstance(self.layers, Sequence) else (self.layers,)
        for layer in layers:
            tokens = layer(tokens, **masks)
        if self.encoder_norm is not None:
            tokens = self.encoder_norm(tokens).astype(tokens.dtype)
        return tokens

    @classmethod
    def from_variant_str(cls, variant_str: str, **kwargs: Any) -> Self:
        """Return an encoder by name.

        Args:
          variant_str: Such as `"B/16"`, or `"ViT-L"` with `patch_size=` among the rest.
          **kwargs: Arguments of `from_spec` that replace what the name stands for.

        Returns:
          The encoder.
        """
        sizes: dict[str, Any] = ViTSpec.from_variant_string(variant_str).kwargs | kwargs
        if "patch_size" not in sizes:
            raise ValueError(
                f"The ViT {variant_str!r} has no patch size: write '{variant_str}/16', or "
                "give patch_size=16."
            )
        return cls.from_spec(**sizes)

    @classmethod
    def from_spec(
        cls,
        num_heads: int,
        hidden_size: int,
        num_layers: int,
        patch_size: int | tuple[int, int],
        mlp_size: int | None = None,
        block_type: Callable[..., Any] = PreNormBlock,
        dtype: Any = jnp.float32,
        *,
        activation_fn: Callable[..., Any] = nn.gelu,
        implementation: Implementation | None = None,
        scan_layers: bool = False,
        remat: bool | str = False,
        **kwargs: Any,
    ) -> Self:
        """Return an encoder by its sizes.

        Args:
          num_heads: Number of attention heads.
          hidden_size: Features of a token.
          num_layers: Number of blocks.
          patch_size: Side of a patch, or height and width.
          mlp_size: Features inside the MLPs; by default four times `hidden_size`.
          block_type: Class of the blocks.
          dtype: Dtype of the blocks' norms.
          activation_fn: Activation of the MLPs.
          implementation: How to compute attention; `None` chooses.
          scan_layers: Whether to compile one block for all, as `ScannedLayers`. The
            parameters are then stacked; `kd.nn.stack_layers` converts.
          remat: Whether to compute each block again in the backward pass, which takes
            less memory and more time; or a policy of `kd.nn.Remat`.
          **kwargs: More arguments of the encoder.

        Returns:
          The encoder.
        """
        if isinstance(patch_size, int):
            patch_size = (patch_size, patch_size)

        def block() -> Any:
            return block_type(
                attention_norm=nn.LayerNorm(dtype=dtype),
                mlp_norm=nn.LayerNorm(dtype=dtype),
                attention=ImprovedMultiHeadDotProductAttention(
                    num_heads=num_heads, implementation=implementation
                ),
                mlp=TransformerMLP(hidden_size=mlp_size, activation_fn=activation_fn),
            )

        if scan_layers:
            layers = ScannedLayers(model=block(), num_layers=num_layers, remat=remat)
        else:
            layers = tuple(block() for _ in range(num_layers))
            if remat:
                policy = remat_policy(remat)
                layers = tuple(Remat(model=layer, policy=policy) for layer in layers)
        return cls(
            layers=layers,
            embedding=PatchifyEmbed(patch_size=patch_size, hidden_size=hidden_size),
            **kwargs,
        )


_Mode = Literal["gap", "cls_token", "cls_token_forced"]


class Vit(nn.Module):
    """A classifier of images.

    Attributes:
      encoder: From images to tokens.
      num_classes: Number of classes.
      init_head_bias: Initialiser of the last bias.
      mode: What is classified: `"gap"` for the mean of all tokens, `"cls_token"` for
        the first, which the encoder must have added, `"cls_token_forced"` for the first
        of any encoder.
      image: Key of the images.
      has_pre_logits: Whether there is a dense layer with tanh in front of the last.

    Example:
      >>> import jax
      >>> from kauldron import kd
      >>> encoder = kd.nn.VitEncoder.from_variant_str("mu/4")
      >>> model = kd.nn.Vit(encoder=encoder, num_classes=10, image="batch.image")
      >>> init = model.init_with_output
      >>> preds, _ = jax.eval_shape(init, jax.random.key(0), jnp.ones((2, 8, 8, 3)))
      >>> preds["logits"].shape
      (2, 10)
    """

    encoder: nn.Module
    num_classes: int = 1000
    init_head_bias: Callable[..., Any] = nn.initializers.zeros_init()
    mode: _Mode = "gap"
    image: kontext.Key = kontext.REQUIRED
    has_pre_logits: bool = True

    def __post_init__(self) -> None:
        if self.mode not in get_args(_Mode):
            raise ValueError(
                f"Vit: unknown mode {self.mode!r}; known: {', '.join(get_args(_Mode))}."
            )
        super().__post_init__()

    @nn.compact
    @typechecked
    def __call__(self, image: Float["*b h w c"]) -> dict[str, Any]:
        tokens = self.encoder(image)
        features = self._pooled(tokens)
        if self.has_pre_logits:
            dense = nn.Dense(features.shape[-1], name="pre_logits")
            features = jnp.tanh(dense(features))
        logits = nn.Dense(
            self.num_classes, bias_init=self.init_head_bias, name="classifier_head"
        )(features)
        return {"logits": logits}

    def _pooled(self, tokens: Any) -> Any:
        if self.mode == "gap":
            return jnp.mean(tokens, axis=-2)
        if self.mode == "cls_token" and not getattr(
            self.encoder, "prepend_cls_token", False
        ):
            raise ValueError(
                "Vit(mode='cls_token') needs an encoder with prepend_cls_token=True. To "
                "take the first token of any encoder: mode='cls_token_forced'."
            )
        return tokens[..., 0, :]


class VitAutoEncoder(nn.Module):
    """Reproduces images from their tokens.

    Each token gives the same number of values, in the order of memory: these are not
    the pixels of its patch.

    Attributes:
      encoder: From images to tokens.
      image: Key of the images.
    """

    encoder: nn.Module
    image: kontext.Key = kontext.REQUIRED

    @nn.compact
    @typechecked
    def __call__(self, image: Float["*b h w c"]) -> dict[str, Any]:
        tokens = self.encoder(image)
        height, width, channels = image.shape[-3:]
        num_tokens, num_values = tokens.shape[-2], height * width * channels
        if num_values % num_tokens:
            raise ValueError(
                f"VitAutoEncoder: the {num_values} values of an image of "
                f"{height} x {width} x {channels} cannot be divided among {num_tokens} "
                "tokens. A class token (prepend_cls_token=True) cannot be used here."
            )
        values = nn.Dense(num_values // num_tokens, name="decoder")(tokens)
        return {"image": values.reshape(image.shape)}
