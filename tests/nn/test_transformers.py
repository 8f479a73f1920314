"""Blocks of a transformer: parameters, formulas, dtypes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd
from kauldron.nn import transformers
from tests.nn.param_shapes import param_shapes, random_variables

KEY = jax.random.key(0)
TOKENS = np.random.default_rng(0).normal(size=(2, 5, 16)).astype(np.float32)
BLOCKS = [kd.nn.PreNormBlock, kd.nn.PostNormBlock, kd.nn.ParallelAttentionBlock]

ATTENTION = {
    f"{name}/{leaf}": shape
    for name in ("query", "key", "value")
    for leaf, shape in {"kernel": (16, 4, 4), "bias": (4, 4)}.items()
} | {"out/kernel": (4, 4, 16), "out/bias": (16,)}
MLP = {
    "dense_in/kernel": (16, 24),
    "dense_in/bias": (24,),
    "dense_out/kernel": (24, 16),
    "dense_out/bias": (16,),
}


def prefixed(prefix, shapes):
    return {f"{prefix}/{name}": shape for name, shape in shapes.items()}


def make(block, **kwargs):
    return block.from_spec(num_heads=4, mlp_size=24, normalize_qk=False, **kwargs)


@pytest.mark.parametrize("block", BLOCKS)
def test_params_of_a_block(block):
    norm = {"scale": (16,), "bias": (16,)}
    is_parallel = block is kd.nn.ParallelAttentionBlock
    assert param_shapes(make(block), TOKENS) == {
        **prefixed("attention", ATTENTION),
        **prefixed("mlp", MLP),
        **prefixed("attention_norm", {"scale": (16,)} if is_parallel else norm),
        **prefixed("mlp_norm", norm),
    }


def test_params_of_a_block_that_is_made_inside_a_module():
    class Model(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            attention = kd.nn.ImprovedMultiHeadDotProductAttention(num_heads=4)
            return kd.nn.PreNormBlock(attention=attention)(tokens)

    tops = {path.split("/")[0] for path in param_shapes(Model(), TOKENS)}
    assert tops == {
        "ImprovedMultiHeadDotProductAttention_0",
        "TransformerMLP_0",
        "LayerNorm_0",
        "LayerNorm_1",
    }


def test_mlp_is_four_times_as_wide_by_default_and_within_the_bound_of_xavier():
    variables = jax.jit(kd.nn.TransformerMLP().init)(KEY, TOKENS)
    params = jax.device_get(variables["params"])
    kernel = params["dense_in"]["kernel"]
    assert kernel.shape == (16, 64)
    bound = np.sqrt(6 / (16 + 64))
    assert 0.9 * bound < abs(kernel).max() <= bound
    assert not params["dense_in"]["bias"].any()


def plain_gelu(x):
    return nn.gelu(x)


def test_gradients_of_gelu_are_those_of_flax():
    x = np.linspace(-6, 6, 97, dtype=np.float32)

    def slopes(activation):
        return jax.jit(jax.vmap(jax.grad(activation)))(x)

    np.testing.assert_array_equal(transformers.gelu(x), nn.gelu(x))
    expected = slopes(nn.gelu)
    np.testing.assert_allclose(slopes(transformers.gelu), expected, atol=1e-5)
    ones = np.ones_like(x)
    forward = jax.jit(lambda x: jax.jvp(transformers.gelu, (x,), (ones,))[1])
    np.testing.assert_allclose(forward(x), expected, atol=1e-5)


def test_backward_pass_of_gelu_keeps_its_slope_beside_the_hidden_layer():
    def kept(activation_fn):
        mlp = kd.nn.TransformerMLP(24, activation_fn=activation_fn)
        variables = random_variables(mlp, TOKENS)
        pull_back = jax.eval_shape(
            lambda x: jax.vjp(mlp.apply, variables, x)[1], TOKENS
        )
        return [leaf.shape for leaf in jax.tree.leaves(pull_back)].count((2, 5, 24))

    assert kept(nn.gelu) == 2 < kept(plain_gelu)


def parts(block, variables, mask=None):
    """The parts of a block, as functions with its parameters."""

    def call(name, x, **kwargs):
        module = getattr(block, name)
        return module.apply({"params": variables["params"][name]}, x, **kwargs)

    return (
        lambda x: call("attention", x, mask=mask),
        lambda x: call("mlp", x),
        lambda x: call("attention_norm", x),
        lambda x: call("mlp_norm", x),
    )


def pre_norm(t, attend, mlp, norm_a, norm_m):
    t = t + attend(norm_a(t))
    return t + mlp(norm_m(t))


def post_norm(t, attend, mlp, norm_a, norm_m):
    t = t + attend(t)
    return norm_m(t + mlp(norm_a(t)))


def parallel(t, attend, mlp, norm_a, norm_m):
    return t + attend(norm_a(t)) + mlp(norm_m(t))


@pytest.mark.parametrize(
    "block, formula", list(zip(BLOCKS, (pre_norm, post_norm, parallel)))
)
def test_block_follows_its_formula_with_and_without_a_mask(block, formula):
    module = make(block)

    @jax.jit
    def run(variables):
        return [
            (
                module.apply(variables, TOKENS, attention_mask=mask),
                formula(TOKENS, *parts(module, variables, mask)),
            )
            for mask in (None, np.tril(np.ones((1, 5, 5), bool)))
        ]

    # With these parameters, norms are not the identity.
    for out, expected in run(random_variables(module, TOKENS)):
        np.testing.assert_allclose(out, expected, atol=1e-6)


@pytest.mark.parametrize("block", BLOCKS)
def test_16_bit_tokens_stay_16_bit(block):
    tokens = TOKENS.astype(jnp.bfloat16)
    out = jax.eval_shape(lambda: make(block).init_with_output(KEY, tokens)[0])
    assert out.dtype == jnp.bfloat16


def test_from_spec_normalizes_queries_and_keys_and_passes_arguments_on():
    block = kd.nn.PostNormBlock.from_spec(
        2,
        attn_kwargs={"use_bias": False},
        mlp_kwargs={"activation_fn": nn.relu},
        mlp_norm=nn.RMSNorm(),
    )
    assert type(block) is kd.nn.PostNormBlock
    assert block.attention.normalize_qk and not block.attention.use_bias
    assert block.mlp == kd.nn.TransformerMLP(activation_fn=nn.relu)
    assert isinstance(block.mlp_norm, nn.RMSNorm)


def test_wrong_rank_is_told():
    with pytest.raises(kd.ktyping.KTypeCheckError, match="tokens"):
        make(kd.nn.PreNormBlock).init(KEY, jnp.ones(16))
