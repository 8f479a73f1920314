"""Blocks of a transformer: attention, an MLP, and where the norms and residuals go."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from kauldron.ktyping import Bool, Float, typechecked
from kauldron.nn.attention import ImprovedMultiHeadDotProductAttention
from kauldron.nn.protocols import AttentionModule, NormModule


class TransformerMLP(nn.Module):
    """Two dense layers, computed in the dtype of the inputs.

    Attributes:
      hidden_size: Features between the layers; by default four times the inputs'.
      activation_fn: What is between the layers.
      kernel_init: Initialiser of the kernels.
      bias_init: Initialiser of the biases.
    """

    hidden_size: int | None = None
    activation_fn: Callable[..., Any] = nn.gelu
    kernel_init: Callable[..., Any] = nn.initializers.xavier_uniform()
    bias_init: Callable[..., Any] = nn.initializers.zeros_init()

    @nn.compact
    @typechecked
    def __call__(self, inputs: Float["*b d"]) -> Float["*b d"]:
        size = inputs.shape[-1]
        hidden = self._dense("dense_in", self.hidden_size or 4 * size, inputs)
        activation = gelu if self.activation_fn is nn.gelu else self.activation_fn
        return self._dense("dense_out", size, activation(hidden))

    def _dense(self, name: str, features: int, inputs: Any) -> Any:
        return nn.Dense(
            features,
            dtype=inputs.dtype,
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            name=name,
        )(inputs)


@jax.custom_jvp
def gelu(x: Any) -> Any:
    """`nn.gelu`, whose gradient needs nothing but `x`.

    Jax would derive it from the tanh of the forward pass, which XLA then keeps: as much
    memory as the whole hidden layer, written and read once more.
    """
    return nn.gelu(x)


@gelu.defjvp  # pyright: ignore[reportFunctionMemberAccess]
def _gelu_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    [x], [tangent] = primals, tangents
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    # (1 + tanh(z / 2)) / 2 is the logistic function of z.
    part = jax.nn.sigmoid(_SLOPE * (wide + _CUBIC * wide**3))
    slope = part + wide * part * (1 - part) * _SLOPE * (1 + 3 * _CUBIC * wide**2)
    return nn.gelu(x), tangent * slope.astype(x.dtype)


_SLOPE = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715


class _Block(nn.Module):
    """What the blocks share: their parts, and how they are built."""

    attention: AttentionModule
    mlp: Callable[..., Any] = dataclasses.field(default_factory=TransformerMLP)
    attention_norm: NormModule = dataclasses.field(default_factory=nn.LayerNorm)
    mlp_norm: NormModule = dataclasses.field(default_factory=nn.LayerNorm)

    @classmethod
    def from_spec(
        cls,
        num_heads: int,
        mlp_size: int | None = None,
        normalize_qk: bool = True,
        attn_kwargs: Mapping[str, Any] | None = None,
        mlp_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return a block by its sizes.

        Args:
          num_heads: Number of attention heads.
          mlp_size: Features between the layers of the MLP; by default four times the
            tokens'.
          normalize_qk: Whether to normalise queries and keys.
          attn_kwargs: More arguments of `ImprovedMultiHeadDotProductAttention`.
          mlp_kwargs: More arguments of `TransformerMLP`.
          **kwargs: More arguments of the block.

        Returns:
          The block.
        """
        return cls(
            attention=ImprovedMultiHeadDotProductAttention(
                num_heads=num_heads, normalize_qk=normalize_qk, **(attn_kwargs or {})
            ),
            mlp=TransformerMLP(hidden_size=mlp_size, **(mlp_kwargs or {})),
            **kwargs,
        )

    def _attend(self, tokens: Any, mask: Any) -> Any:
        return self.attention(
            inputs_q=tokens, inputs_k=tokens, inputs_v=tokens, mask=mask
        ).astype(tokens.dtype)


class PreNormBlock(_Block):
    """Normalises what goes into attention and MLP (Xiong et al. 2020).

    Attributes:
      attention: The attention.
      mlp: The MLP.
      attention_norm: In front of the attention; by default a LayerNorm.
      mlp_norm: In front of the MLP; by default a LayerNorm.

    References:
      Xiong et al., [On Layer Normalization in the Transformer
      Architecture](https://arxiv.org/abs/2002.04745), 2020
    """

    @nn.compact
    @typechecked
    def __call__(
        self,
        tokens: Float["*b n d"],
        attention_mask: Bool["*#b #h #n #n"] | Bool["#h #n #n"] | None = None,
    ) -> Float["*b n d"]:
        dtype = tokens.dtype
        normed = self.attention_norm(tokens).astype(dtype)
        tokens = tokens + self._attend(normed, attention_mask)
        normed = self.mlp_norm(tokens).astype(dtype)
        return tokens + self.mlp(normed).astype(dtype)


class PostNormBlock(_Block):
    """Normalises after attention and after the MLP.

    The residual of the MLP is the token before its norm.

    Attributes:
      attention: The attention.
      mlp: The MLP.
      attention_norm: After the attention; by default a LayerNorm.
      mlp_norm: After the MLP; by default a LayerNorm.
    """

    @nn.compact
    @typechecked
    def __call__(
        self,
        tokens: Float["*b n d"],
        attention_mask: Bool["*#b #h #n #n"] | Bool["#h #n #n"] | None = None,
    ) -> Float["*b n d"]:
        dtype = tokens.dtype
        tokens = tokens + self._attend(tokens, attention_mask)
        normed = self.attention_norm(tokens).astype(dtype)
        return self.mlp_norm(tokens + self.mlp(normed).astype(dtype)).astype(dtype)


class ParallelAttentionBlock(_Block):
    """Attention and MLP side by side (Dehghani et al. 2023).

    Attributes:
      attention: The attention.
      mlp: The MLP.
      attention_norm: In front of the attention; by default an RMSNorm.
      mlp_norm: In front of the MLP; by default a LayerNorm.

    References:
      Dehghani et al., [Scaling Vision Transformers to 22 Billion
      Parameters](https://arxiv.org/abs/2302.05442), 2023
    """

    attention_norm: NormModule = dataclasses.field(default_factory=nn.RMSNorm)

    @nn.compact
    @typechecked
    def __call__(
        self,
        tokens: Float["*b n d"],
        attention_mask: Bool["*#b #h #n #n"] | Bool["#h #n #n"] | None = None,
    ) -> Float["*b n d"]:
        dtype = tokens.dtype
        attended = self._attend(
            self.attention_norm(tokens).astype(dtype), attention_mask
        )
        mixed = self.mlp(self.mlp_norm(tokens).astype(dtype)).astype(dtype)
        return tokens + attended + mixed
