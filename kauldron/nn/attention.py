"""Attention: the functions, and the modules that hold the projections.

cuDNN's kernel, which never writes the weights to memory, is used through
`jax.nn.dot_product_attention` where the device, the dtype and the shapes allow it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp

from kauldron.ktyping import Bool, Float, typechecked
from kauldron.nn.properties import (
    interms_property,
    refuse_deterministic,
    train_property,
)

Implementation = Literal["cudnn", "xla", "weights"]


#
# Which kernel
#


_LARGEST_HEAD = 128
_LARGEST_HEAD_ON_HOPPER = 256


def choose_implementation(
    query: Any, key: Any, value: Any, *, capability: str | None
) -> Implementation:
    """Return the fastest way to attend without bias, mask and dropout.

    cuDNN's kernel takes 16-bit numbers, any lengths, and heads of a multiple of 8
    features: at most 128, on Hopper 256.

    Args:
      query: Queries `(*b, q, h, d)`, or their spec.
      key: Keys `(*b, k, h, d)`.
      value: Values `(*b, k, h, d)`.
      capability: Compute capability of the GPU, as `"9.0"`; `None` without one.

    Returns:
      `"cudnn"`, or `"weights"` for plain code that computes the weights.

    Example:
      >>> heads = jax.ShapeDtypeStruct((8, 197, 12, 64), jnp.bfloat16)
      >>> choose_implementation(heads, heads, heads, capability="9.0")
      'cudnn'
      >>> choose_implementation(heads, heads, heads, capability=None)
      'weights'
    """
    is_recent = capability is not None and _major(capability) >= 8
    dtypes = {array.dtype for array in (query, key, value)}
    is_half = len(dtypes) == 1 and dtypes <= {
        jnp.dtype("bfloat16"),
        jnp.dtype("float16"),
    }
    size = query.shape[-1]
    largest = _LARGEST_HEAD_ON_HOPPER if capability == "9.0" else _LARGEST_HEAD
    fits = size % 8 == 0 and size <= largest and key.shape == value.shape
    return "cudnn" if is_recent and is_half and fits else "weights"


def _major(capability: str) -> int:
    """Return 9 for "9.0". AMD's are names, such as "gfx942"."""
    major = capability.partition(".")[0]
    return int(major) if major.isdigit() else 0


def _gpu_capability() -> str | None:
    """Return the compute capability of where arrays go by default."""
    device = jax.config.jax_default_device
    if device is None or isinstance(device, str):
        device = jax.local_devices(backend=device)[0]
    return getattr(device, "compute_capability", None)


def _choose(
    query: Any, key: Any, value: Any, bias: Any, mask: Any, *, needs_weights: bool
) -> Implementation:
    if needs_weights or bias is not None or mask is not None:
        return "weights"
    return choose_implementation(query, key, value, capability=_gpu_capability())


def _check_implementation(implementation: Any) -> None:
    if implementation not in (None, *get_args(Implementation)):
        raise ValueError(
            f"Unknown implementation of attention {implementation!r}; known: "
            f"{', '.join(get_args(Implementation))}, and None to choose."
        )


def _call_jax(
    query: Any, key: Any, value: Any, bias: Any, mask: Any, implementation: Any
) -> Any:
    """Call `jax.nn.dot_product_attention`, which knows one batch axis."""
    batch = query.shape[:-3]

    def flat(array: Any) -> Any:
        return array.reshape(-1, *array.shape[-3:])

    def flat_weights(array: Any) -> Any:
        if array is None:
            return None
        array = jnp.broadcast_to(array, jnp.broadcast_shapes(array.shape, (1, 1, 1)))
        return flat(jnp.broadcast_to(array, (*batch, *array.shape[-3:])))

    length = query.shape[-3]
    query, key, value = flat(query), flat(key), flat(value)
    lengths = {}
    if implementation == "cudnn" and bias is None and mask is None:
        query, lengths["query_seq_lengths"] = to_even_length(query)
        key, lengths["key_value_seq_lengths"] = to_even_length(key)
        value, _ = to_even_length(value)
    result = jax.nn.dot_product_attention(
        query,
        key,
        value,
        bias=flat_weights(bias),
        mask=flat_weights(mask),
        implementation=implementation,
        **lengths,
    )[:, :length]
    return result.reshape(*batch, *result.shape[-3:])


def to_even_length(heads: Any) -> tuple[Any, Any]:
    """Add a filler to an odd number of tokens, which cuDNN does not differentiate.

    Also return how many tokens of each example are real; `None` if all are.
    """
    count, length = heads.shape[:2]
    if length % 2 == 0:
        return heads, None
    padded = jnp.pad(heads, ((0, 0), (0, 1), (0, 0), (0, 0)))
    return padded, jnp.full((count,), length, jnp.int32)


#
# Attention of heads that are there already
#


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    implementation: Implementation | None = None,
    **options: Any,
) -> Any:
    """`flax.linen.dot_product_attention`, by the fastest kernel that can do it.

    Can be the `attention_fn` of any flax attention module. A bias, a mask, dropout in
    training, and weights that are wanted as intermediates need the plain code, which is
    flax's.

    Args:
      query: Queries `(*b, q, h, d)`.
      key: Keys `(*b, k, h, d)`.
      value: Values `(*b, k, h, d)`.
      bias: Added to the logits. Broadcast to `(*b, h, q, k)`.
      mask: False where a query must not look. Broadcast to `(*b, h, q, k)`.
      implementation: `"cudnn"` and `"xla"` force those of
        `jax.nn.dot_product_attention`, `"weights"` the plain code; `None` chooses.
      **options: Others of flax's function: `dropout_rate`, `deterministic`, ...

    Returns:
      An array like the queries, with as many features as the values have.

    Example:
      >>> heads = jnp.ones((2, 5, 4, 8))
      >>> dot_product_attention(heads, heads, heads).shape
      (2, 5, 4, 8)
    """
    _check_implementation(implementation)
    needs_weights = _asks_for_weights(options)
    implementation = implementation or _choose(
        query, key, value, bias, mask, needs_weights=needs_weights
    )
    if implementation == "weights":
        return nn.dot_product_attention(query, key, value, bias, mask, **options)
    if needs_weights:
        raise ValueError(
            f"dot_product_attention(implementation={implementation!r}) can neither drop "
            "nor store attention weights, nor take another precision or einsum: use "
            "implementation=None."
        )
    return _call_jax(query, key, value, bias, mask, implementation)


# Flax passes on the options that it finds in the signature.
dot_product_attention.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        *inspect.signature(nn.dot_product_attention).parameters.values(),
        inspect.signature(dot_product_attention).parameters["implementation"],
    ]
)

_PLAIN_OPTIONS = ("dropout_rng", "dropout_rate", "broadcast_dropout", "deterministic")
_OPTIONS_WITHOUT_EFFECT = (*_PLAIN_OPTIONS, "dtype", "force_fp32_for_softmax")


def _asks_for_weights(options: dict[str, Any]) -> bool:
    has_dropout = options.get("dropout_rate", 0.0) > 0.0
    others = [options[name] for name in options if name not in _OPTIONS_WITHOUT_EFFECT]
    return (has_dropout and not options.get("deterministic")) or any(
        value is not None for value in others
    )


@typechecked
def dot_product_attention_weights(
    query: Float["*b q h d"],
    key: Float["*b k h d"],
    softmax_axis: int | Sequence[int] = -1,
    bias: Float["*#b #h #q #k"] | Float["#h #q #k"] | None = None,
    mask: Bool["*#b #h #q #k"] | Bool["#h #q #k"] | None = None,
    softmax_dtype: Any = jnp.float32,
) -> Float["*b h q k"]:
    """Return how much each query looks at each key.

    Args:
      query: The queries; scaled by `1 / sqrt(d)`.
      key: The keys.
      softmax_axis: The axes over which weights sum to one: -1 for the keys, -2 for the
        queries, or both.
      bias: Added to the logits. Broadcast to `(*b, h, q, k)`.
      mask: False where a query must not look. Where nothing is left to look at, all
        weights are equal.
      softmax_dtype: Dtype of the softmax; `None` for that of the inputs.

    Returns:
      The weights, in the dtype of the queries.

    Example:
      >>> query, key = jnp.ones((2, 3, 1, 8)), jnp.ones((2, 5, 1, 8))
      >>> dot_product_attention_weights(query, key).shape
      (2, 1, 3, 5)
    """
    query = query / jnp.sqrt(query.shape[-1]).astype(query.dtype)
    logits = jnp.einsum("...qhd,...khd->...hqk", query, key)
    if bias is not None:
        logits = logits + bias.astype(logits.dtype)
    if mask is not None:
        logits = jnp.where(mask, logits, jnp.finfo(query.dtype).min)
    return softmax(logits, axis=softmax_axis, dtype=softmax_dtype)


@typechecked
def softmax(
    x: Float["*b"], axis: int | Sequence[int] = -1, dtype: Any = jnp.float32
) -> Float["*b"]:
    """Return `jax.nn.softmax`, computed in another dtype.

    Args:
      x: The logits.
      axis: The axes that sum to one.
      dtype: What to compute in; `None` for the dtype of `x`.

    Returns:
      An array like `x`.
    """
    axis = axis if isinstance(axis, int) else tuple(axis)
    return jax.nn.softmax(x.astype(dtype or x.dtype), axis=axis).astype(x.dtype)


#
# Modules
#


class MultiHeadDotProductAttention(nn.MultiHeadDotProductAttention):
    """`flax.linen.MultiHeadDotProductAttention`, with dropout in training only.

    Attributes:
      deterministic: Not to be set; the mode comes from `is_training_property=`.
      attention_fn: To force a kernel: `functools.partial(kd.nn.dot_product_attention,
        implementation="weights")`.
    """

    attention_fn: Callable[..., Any] = dot_product_attention

    is_training = train_property()

    def __post_init__(self) -> None:
        refuse_deterministic(self)
        super().__post_init__()

    @nn.compact
    @typechecked
    def __call__(  # type: ignore[override]
        self,
        inputs_q: Float["*b q dq"],
        inputs_k: Float["*b kv dk"] | None = None,
        inputs_v: Float["*b kv dv"] | None = None,
        *,
        mask: Bool["*#b #heads #q #kv"] | Bool["#heads #q #kv"] | None = None,
        sow_weights: bool = False,
    ) -> Float["*b q do"]:
        """Attend.

        Args:
          inputs_q: What the queries are made of.
          inputs_k: What the keys are made of; by default `inputs_q`.
          inputs_v: What the values are made of; by default `inputs_k`.
          mask: What each query may look at. Broadcast to `(*b, heads, q, kv)`.
          sow_weights: Whether to store the weights among the intermediates.

        Returns:
          One token for each query.
        """
        has_dropout = self.dropout_rate > 0
        return super().__call__(
            inputs_q,
            inputs_k,
            inputs_v,
            mask=mask,
            deterministic=not self.is_training if has_dropout else None,
            sow_weights=sow_weights,
        )


class ImprovedMultiHeadDotProductAttention(nn.Module):
    """Attention with a choice of softmax axis, a bias, and weights that can be seen.

    Computes in the dtype of the inputs. The weights are stored as the intermediate
    `attn_weights`; inside `jit` they cost nothing unless something reads them.

    Attributes:
      num_heads: Number of heads.
      qk_features: Features of queries and keys, over all heads. By default those of
        `inputs_q`.
      v_features: Features of the values, over all heads. By default `qk_features`.
      out_features: Features of the result. By default those of `inputs_q`.
      softmax_axis: The axes over which weights sum to one: -1 for the keys, -2 for the
        queries, as in slot attention, or both.
      normalize_qk: Whether to normalise queries and keys, which keeps the logits small.
      kernel_init: Initialiser of the kernels.
      bias_init: Initialiser of the biases.
      use_bias: Whether the projections have biases.
      attn_weights_fn: Computes the weights.
      decode: Accepted for older configs; must be False.
      implementation: `"cudnn"` and `"xla"` force those of
        `jax.nn.dot_product_attention`, `"weights"` the code that computes the weights.
        `None` takes cuDNN's where it can be used.

    Example:
      >>> tokens = jnp.ones((2, 5, 16))
      >>> attention = ImprovedMultiHeadDotProductAttention(num_heads=4)
      >>> variables = jax.eval_shape(attention.init, jax.random.key(0), tokens)
      >>> variables["params"]["query"]["kernel"].shape
      (16, 4, 4)
    """

    num_heads: int
    qk_features: int | None = None
    v_features: int | None = None
    out_features: int | None = None
    softmax_axis: int | Sequence[int] = -1
    normalize_qk: bool = False
    kernel_init: Callable[..., Any] = nn.initializers.lecun_normal()
    bias_init: Callable[..., Any] = nn.initializers.zeros_init()
    use_bias: bool = True
    attn_weights_fn: Callable[..., Any] = dot_product_attention_weights
    decode: bool = False
    implementation: Implementation | None = None

    interms = interms_property()

    def __post_init__(self) -> None:
        if self.decode:
            raise NotImplementedError(
                f"{type(self).__name__}(decode=True): decoding step by step is not "
                "implemented. `flax.linen.MultiHeadDotProductAttention` has it."
            )
        _check_implementation(self.implementation)
        if not isinstance(self.softmax_axis, int):
            self.softmax_axis = tuple(self.softmax_axis)
        super().__post_init__()

    @nn.compact
    @typechecked
    def __call__(
        self,
        inputs_q: Float["*b q dq"],
        inputs_k: Float["*b kv dk"] | None = None,
        inputs_v: Float["*b kv dv"] | None = None,
        *,
        bias: Float["*#b #heads #q #kv"] | Float["#heads #q #kv"] | None = None,
        mask: Bool["*#b #heads #q #kv"] | Bool["#heads #q #kv"] | None = None,
    ) -> Float["*b q do"]:
        """Attend.

        Args:
          inputs_q: What the queries are made of.
          inputs_k: What the keys are made of; by default `inputs_q`.
          inputs_v: What the values are made of; by default `inputs_k`.
          bias: Added to the logits. Broadcast to `(*b, heads, q, kv)`.
          mask: False where a query must not look. Broadcast to `(*b, heads, q, kv)`.

        Returns:
          One token for each query.
        """
        if inputs_k is None and inputs_v is not None:
            raise ValueError(
                f"{type(self).__name__} got `inputs_v` without `inputs_k`. For keys and "
                "values from the same tokens, give `inputs_k` alone."
            )
        inputs_k = inputs_q if inputs_k is None else inputs_k
        inputs_v = inputs_k if inputs_v is None else inputs_v
        qk_features = self.qk_features or inputs_q.shape[-1]
        v_features = self.v_features or qk_features
        query = self._heads("query", inputs_q, qk_features)
        key = self._heads("key", inputs_k, qk_features)
        value = self._heads("value", inputs_v, v_features)
        if self.normalize_qk:
            query = self._normalized("query_norm", query)
            key = self._normalized("key_norm", key)
        values = self._attend(query, key, value, bias, mask)
        return nn.DenseGeneral(
            self.out_features or inputs_q.shape[-1],
            axis=(-2, -1),
            dtype=inputs_q.dtype,
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            use_bias=self.use_bias,
            name="out",
        )(values)

    def _heads(self, name: str, inputs: Any, features: int) -> Any:
        if features % self.num_heads:
            raise ValueError(
                f"{type(self).__name__}: {features} features of the {name} cannot be "
                f"divided among num_heads={self.num_heads}."
            )
        return nn.DenseGeneral(
            (self.num_heads, features // self.num_heads),
            dtype=inputs.dtype,
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            use_bias=self.use_bias,
            name=name,
        )(inputs)

    def _normalized(self, name: str, heads: Any) -> Any:
        return nn.LayerNorm(use_bias=False, dtype=heads.dtype, name=name)(heads)

    def _attend(self, query: Any, key: Any, value: Any, bias: Any, mask: Any) -> Any:
        needs_weights = (
            self.softmax_axis != -1
            or self.attn_weights_fn is not dot_product_attention_weights
        )
        implementation = self.implementation or _choose(
            query, key, value, bias, mask, needs_weights=needs_weights
        )
        if needs_weights and implementation != "weights":
            raise ValueError(
                f"{type(self).__name__}(implementation={implementation!r}) needs "
                "softmax_axis=-1 and the usual attn_weights_fn."
            )
        weights = self.attn_weights_fn(
            query=query, key=key, softmax_axis=self.softmax_axis, bias=bias, mask=mask
        )
        self.interms["attn_weights"] = weights
        if implementation == "weights":
            return jnp.einsum("...hqk,...khd->...qhd", weights, value)
        # The weights are not used here: if nothing else reads them, XLA removes them.
        return _call_jax(query, key, value, bias, mask, implementation)
