"""What the parameters of a model are made of, in files of other libraries.

A layout is a dict from the path of a parameter to an array of the file. Here are those of
Vision Transformers as timm, Hugging Face, big_vision and the original authors store them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import einops
import flax.core
import jax
import jax.numpy as jnp


class Source(Protocol):
    """What a parameter is made of."""

    @property
    def names(self) -> Sequence[str]:
        """The arrays of the file, which may contain placeholders."""
        ...

    def make(self, *arrays: Any, shape: tuple[int, ...]) -> Any:
        """Return the parameter, which should have a shape."""
        ...


@dataclasses.dataclass(frozen=True)
class Weight:
    """An array of a file, with its axes in another order.

    Attributes:
      name: The name in the file. Placeholders, as in `"blocks.{i}.norm1.weight"`, stand
        for the numbers at the same placeholders of the parameter's path.
      pattern: How to rearrange it, in the notation of einops: `"o i -> i o"`. Sizes come
        from the shape of the parameter.
      index: If given, the first axis of the rearranged array holds several parts, and
        the one at this index is taken.

    Example:
      >>> queries = Weight("attn.qkv.weight", "(n h f) i -> n i h f", index=0)
      >>> queries.make(jnp.ones((24, 8)), shape=(8, 2, 4)).shape
      (8, 2, 4)
    """

    name: str
    pattern: str | None = None
    index: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def make(self, *arrays: Any, shape: tuple[int, ...]) -> Any:
        [array] = arrays
        if self.pattern is not None:
            axes = self.pattern.partition("->")[2].split()
            axes = axes if self.index is None else axes[1:]
            sizes = {a: s for a, s in zip(axes, shape) if not a.isdigit()}
            array = einops.rearrange(array, self.pattern, **sizes)
        return array if self.index is None else array[self.index]


Layout = Mapping[str, "str | Source"]


#
# Vision Transformers: into `kd.nn.Vit` with `encoder_norm=nn.LayerNorm()`
#


@dataclasses.dataclass(frozen=True)
class _Positions:
    """Position embeddings without that of the class token, for images of any size."""

    name: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def make(self, *arrays: Any, shape: tuple[int, ...]) -> Any:
        [positions] = arrays
        positions = positions.reshape(-1, positions.shape[-1])
        if len(positions) == shape[0]:
            return positions
        positions = positions[_num_class_tokens(positions) :]
        old, new = math.isqrt(len(positions)), math.isqrt(shape[0])
        if len(positions) == shape[0] or old**2 != len(positions) or new**2 != shape[0]:
            return positions
        grid = jnp.asarray(positions, jnp.float32).reshape(old, old, -1)
        grid = jax.image.resize(grid, (new, new, grid.shape[-1]), "bicubic")
        return grid.reshape(new * new, -1)


@dataclasses.dataclass(frozen=True)
class _ClassToken:
    """The class token, with its position embedding added."""

    token: str
    positions: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.token, self.positions)

    def make(self, *arrays: Any, shape: tuple[int, ...]) -> Any:
        token, positions = arrays
        positions = positions.reshape(-1, positions.shape[-1])
        has_own = _num_class_tokens(positions) == 1
        token = token.reshape(-1)
        return token + positions[0] if has_own else token


def _num_class_tokens(positions: Any) -> int:
    return 0 if math.isqrt(len(positions)) ** 2 == len(positions) else 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Style:
    """How a library names and lays out the arrays of its layers.

    Attributes:
      separator: What the parts of a name are joined by.
      kernel: Name of a kernel.
      scale: Name of the scale of a norm.
      conv: Axes of the kernel of a convolution.
      dense: Axes of the kernel of a dense layer.
      heads: Axes of the kernel that makes queries, keys or values.
      heads_bias: Axes of its bias.
      out: Axes of the kernel after attention.
    """

    separator: str = "/"
    kernel: str = "kernel"
    scale: str = "scale"
    conv: str | None = None
    dense: str | None = None
    heads: str | None = None
    heads_bias: str | None = None
    out: str | None = None

    def layer(
        self,
        target: str,
        name: str,
        kernel: str | None,
        bias: str | None = None,
        index: int | None = None,
    ) -> dict[str, str | Source]:
        """Return the sources of the kernel and the bias of a layer."""
        return {
            f"{target}.kernel": Weight(self._name(name, self.kernel), kernel, index),
            f"{target}.bias": Weight(self._name(name, "bias"), bias, index),
        }

    def norm(self, target: str, name: str) -> dict[str, str | Source]:
        """Return the sources of a norm."""
        return {
            f"{target}.scale": self._name(name, self.scale),
            f"{target}.bias": self._name(name, "bias"),
        }

    def _name(self, *parts: str) -> str:
        return self.separator.join(parts)


def _vit_layout(style: _Style, block: str, **names: str) -> Layout:
    """Return the layout of a ViT by the names of its layers, those of a block relative."""

    def inside(name: str) -> str:
        return f"{block}{style.separator}{names[name]}"

    layers: dict[str, str | Source] = {
        "pos_embedding.embeddings": _Positions(names["positions"]),
        "cls": _ClassToken(names["token"], names["positions"]),
        **style.layer("embedding.patchifier", names["patches"], style.conv),
        **style.norm("layers_{i}.attention_norm", inside("attention_norm")),
        **style.layer("layers_{i}.attention.out", inside("out"), style.out),
        **style.norm("layers_{i}.mlp_norm", inside("mlp_norm")),
        **style.layer("layers_{i}.mlp.dense_in", inside("dense_in"), style.dense),
        **style.layer("layers_{i}.mlp.dense_out", inside("dense_out"), style.dense),
        **style.norm("encoder_norm", names["last_norm"]),
    }
    for index, part in enumerate(("query", "key", "value")):
        is_fused = "qkv" in names
        layers |= style.layer(
            f"layers_{{i}}.attention.{part}",
            inside("qkv" if is_fused else part),
            style.heads,
            style.heads_bias,
            index if is_fused else None,
        )
    return (
        {f"encoder.{path}": source for path, source in layers.items()}
        | layers  # of an encoder without classifier
        | style.layer("pre_logits", "pre_logits", style.dense)
        | style.layer("classifier_head", names["head"], style.dense)
    )


_TORCH = _Style(
    separator=".",
    kernel="weight",
    scale="weight",
    conv="o i h w -> h w i o",
    dense="o i -> i o",
    heads="(h f) i -> i h f",
    heads_bias="(h f) -> h f",
    out="o (h f) -> h f o",
)
_TORCH_FUSED = dataclasses.replace(
    _TORCH, heads="(n h f) i -> n i h f", heads_bias="(n h f) -> n h f"
)
_FLAX = _Style()
_FLAX_FLAT = _Style(
    heads="i (h f) -> i h f", heads_bias="(h f) -> h f", out="(h f) o -> h f o"
)


def _hugging_face_names(separator: str) -> dict[str, str]:
    names = {
        "patches": "embeddings.patch_embeddings.projection",
        "token": "embeddings.cls_token",
        "positions": "embeddings.position_embeddings",
        "attention_norm": "layernorm_before",
        "query": "attention.attention.query",
        "key": "attention.attention.key",
        "value": "attention.attention.value",
        "out": "attention.output.dense",
        "mlp_norm": "layernorm_after",
        "dense_in": "intermediate.dense",
        "dense_out": "output.dense",
        "last_norm": "layernorm",
        "head": "classifier",
    }
    return {part: name.replace(".", separator) for part, name in names.items()}


def _google_names(attention: str, norms: tuple[str, str], mlp: str) -> dict[str, str]:
    return {
        "patches": "embedding",
        "token": "cls",
        "attention_norm": norms[0],
        "query": f"{attention}/query",
        "key": f"{attention}/key",
        "value": f"{attention}/value",
        "out": f"{attention}/out",
        "mlp_norm": norms[1],
        "dense_in": f"{mlp}/Dense_0",
        "dense_out": f"{mlp}/Dense_1",
        "last_norm": "Transformer/encoder_norm",
        "head": "head",
    }


LAYOUTS: Mapping[str, Layout] = flax.core.freeze(
    {
        "timm_vit": _vit_layout(
            _TORCH_FUSED,
            "blocks.{i}",
            patches="patch_embed.proj",
            token="cls_token",
            positions="pos_embed",
            attention_norm="norm1",
            qkv="attn.qkv",
            out="attn.proj",
            mlp_norm="norm2",
            dense_in="mlp.fc1",
            dense_out="mlp.fc2",
            last_norm="norm",
            head="head",
        ),
        "hugging_face_vit": _vit_layout(
            _TORCH, "encoder.layer.{i}", **_hugging_face_names(".")
        ),
        "hugging_face_flax_vit": _vit_layout(
            _FLAX_FLAT, "encoder/layer/{i}", **_hugging_face_names("/")
        ),
        "big_vision_vit": _vit_layout(
            _FLAX,
            "Transformer/encoderblock_{i}",
            positions="pos_embedding",
            **_google_names(
                "MultiHeadDotProductAttention_0",
                ("LayerNorm_0", "LayerNorm_1"),
                "MlpBlock_0",
            ),
        ),
        "vision_transformer_vit": _vit_layout(
            _FLAX,
            "Transformer/encoderblock_{i}",
            positions="Transformer/posembed_input/pos_embedding",
            **_google_names(
                "MultiHeadDotProductAttention_1",
                ("LayerNorm_0", "LayerNorm_2"),
                "MlpBlock_3",
            ),
        ),
    }
)
