"""What the parts of a model expect of each other, for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kauldron.ktyping import Bool, Float


class ActivationFunction(Protocol):
    """A function of each number: `nn.gelu`."""

    def __call__(self, x: Any, /) -> Any: ...


class Initializer(Protocol):
    """Makes the initial value of a parameter: `nn.initializers.zeros`."""

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = ..., /) -> Any: ...


class NormModule(Protocol):
    """A normalisation, from an array to one of the same shape: `nn.LayerNorm`."""

    def __call__(self, x: Float["*b d"], /) -> Float["*b d"]: ...


class AttentionModule(Protocol):
    """Attention: `kd.nn.ImprovedMultiHeadDotProductAttention`.

    Attributes:
      num_heads: The number of heads.
    """

    num_heads: int

    def __call__(
        self,
        inputs_q: Float["*b q dq"],
        inputs_k: Float["*b kv dk"] | None = None,
        inputs_v: Float["*b kv dv"] | None = None,
        *,
        mask: Bool["..."] | None = None,
    ) -> Float["*b q do"]: ...


class ImageTokenizer(Protocol):
    """From images to tokens: `kd.nn.PatchifyEmbed`. The image is passed by position."""

    def __call__(self, image: Float["*b h w c"], /) -> Float["*b n d"]: ...


class PositionEmbedding(Protocol):
    """From the shape of tokens to what is added to them: `kd.nn.LearnedEmbedding`."""

    def __call__(
        self, shape: Sequence[int], *, axis: int | Sequence[int]
    ) -> Float["..."]: ...


class TransformerBlock(Protocol):
    """A layer of a transformer: `kd.nn.PreNormBlock`. Tokens are passed by position."""

    def __call__(
        self, tokens: Float["*b n d"], /, attention_mask: Bool["..."] | None = None
    ) -> Float["*b n d"]: ...
