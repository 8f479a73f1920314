"""Attention: parameters, values against flax, masks, and which kernel is used."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd
from kauldron.nn import attention
from tests.nn.param_shapes import param_shapes, random_variables

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
TOKENS = RNG.normal(size=(2, 5, 16)).astype(np.float32)
Improved = kd.nn.ImprovedMultiHeadDotProductAttention


#
# Parameters
#


@pytest.mark.parametrize("cls", [Improved, kd.nn.MultiHeadDotProductAttention])
def test_params_of_self_attention(cls):
    projection = {"kernel": (16, 4, 4), "bias": (4, 4)}
    expected = {
        f"{name}/{leaf}": shape
        for name in ("query", "key", "value")
        for leaf, shape in projection.items()
    } | {"out/kernel": (4, 4, 16), "out/bias": (16,)}
    assert param_shapes(cls(num_heads=4), TOKENS) == expected


def test_params_of_cross_attention_with_sizes_of_its_own():
    module = Improved(
        4,
        qk_features=8,
        v_features=12,
        out_features=7,
        use_bias=False,
        normalize_qk=True,
    )
    other = np.ones((2, 3, 6), np.float32), np.ones((2, 3, 9), np.float32)
    assert param_shapes(module, TOKENS, *other) == {
        "query/kernel": (16, 4, 2),
        "key/kernel": (6, 4, 2),
        "value/kernel": (9, 4, 3),
        "query_norm/scale": (2,),
        "key_norm/scale": (2,),
        "out/kernel": (4, 3, 7),
    }
    out = jax.eval_shape(lambda: module.init_with_output(KEY, TOKENS, *other)[0])
    assert out.shape == (2, 5, 7)


def test_initial_values():
    tokens = np.ones((1, 2, 256), np.float32)
    init = jax.jit(Improved(4, normalize_qk=True).init)
    params = jax.device_get(init(KEY, tokens)["params"])
    for name in ("query", "key", "value", "out"):
        np.testing.assert_allclose(params[name]["kernel"].std(), 1 / 16, rtol=0.05)
        assert not params[name]["bias"].any()
    np.testing.assert_array_equal(params["query_norm"]["scale"], 1)


#
# Values
#


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_plain_self_attention_is_that_of_flax(batch):
    tokens = RNG.normal(size=(*batch, 5, 16)).astype(np.float32)
    theirs = nn.MultiHeadDotProductAttention(num_heads=4)
    variables = random_variables(theirs, tokens)

    @jax.jit
    def both(tokens):
        return [module.apply(variables, tokens) for module in (Improved(4), theirs)]

    ours, expected = both(tokens)
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_normalized_queries_and_keys_by_hand():
    module = Improved(2, normalize_qk=True)
    variables = random_variables(module, TOKENS)
    params = variables["params"]

    def heads(name):
        part = params[name]
        return np.einsum("bnd,dhf->bnhf", TOKENS, part["kernel"]) + part["bias"]

    def norm(name, x):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + 1e-6) * params[name]["scale"]

    query, key = norm("query_norm", heads("query")), norm("key_norm", heads("key"))
    logits = np.einsum("bqhf,bkhf->bhqk", query, key) / np.sqrt(8)
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    mixed = np.einsum("bhqk,bkhf->bqhf", weights, heads("value"))
    out = np.einsum("bqhf,hfd->bqd", mixed, params["out"]["kernel"])
    out = out + params["out"]["bias"]
    np.testing.assert_allclose(jax.jit(module.apply)(variables, TOKENS), out, atol=1e-5)


def weights_of(module, *args, **kwargs):
    variables = random_variables(module, *args, **kwargs)
    run = functools.partial(module.apply, mutable=["intermediates"])
    _, captured = jax.jit(run)(variables, *args, **kwargs)
    [weights] = captured["intermediates"]["attn_weights"]
    return np.asarray(weights)


def test_weights_sum_to_one_over_the_softmax_axis():
    slots = RNG.normal(size=(2, 3, 16)).astype(np.float32)
    weights = weights_of(Improved(4), slots, TOKENS)
    assert weights.shape == (2, 4, 3, 5)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    over_queries = weights_of(Improved(4, softmax_axis=-2), slots, TOKENS)
    np.testing.assert_allclose(over_queries.sum(-2), 1, rtol=1e-5)
    over_both = weights_of(Improved(4, softmax_axis=[-2, -1]), slots, TOKENS)
    np.testing.assert_allclose(over_both.sum((-2, -1)), 1, rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 4, 5, 5), (1, 1, 5, 5), (1, 5, 5), (2, 1, 1, 5)])
def test_masked_positions_have_no_weight(shape):
    mask = np.ones(shape, bool)
    mask[..., 2] = False
    weights = weights_of(Improved(4), TOKENS, mask=mask)
    assert not weights[..., 2].any()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


def test_row_without_anything_to_look_at_is_uniform():
    weights = weights_of(Improved(4), TOKENS, mask=np.zeros((1, 1, 5, 5), bool))
    np.testing.assert_allclose(weights, 0.2, rtol=1e-6)


def test_bias_is_added_to_the_logits():
    bias = np.array([0, 0, 0, 50, 0], np.float32).reshape(1, 1, 1, 5)
    weights = weights_of(Improved(4), TOKENS, bias=bias)
    np.testing.assert_allclose(weights[..., 3], 1, rtol=1e-5)


def test_16_bit_inputs_stay_16_bit():
    tokens = TOKENS.astype(jnp.bfloat16)
    module = Improved(4, normalize_qk=True)
    variables = random_variables(module, tokens)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {np.dtype("float32")}
    out = jax.jit(module.apply)(variables, tokens)
    assert out.dtype == jnp.bfloat16
    exact = jax.jit(module.apply)(variables, TOKENS)
    np.testing.assert_allclose(out.astype(np.float32), exact, atol=0.05)


def test_softmax_is_computed_in_32_bits_unless_told_otherwise():
    x = np.arange(300).astype(jnp.bfloat16) / 100
    x = x.astype(jnp.bfloat16)

    @jax.jit
    def softmaxes(x):
        exact = jax.nn.softmax(x.astype(jnp.float32)).astype(jnp.bfloat16)
        return exact, attention.softmax(x), attention.softmax(x, dtype=None)

    exact, ours, coarse = jax.device_get(softmaxes(x))
    np.testing.assert_array_equal(ours, exact)
    assert (coarse != exact).any()


def test_wrong_arguments_are_told():
    with pytest.raises(ValueError, match=r"`inputs_v` without `inputs_k`"):
        jax.eval_shape(Improved(4).init, KEY, TOKENS, None, TOKENS)
    with pytest.raises(ValueError, match=r"16 features of the query.*num_heads=3"):
        jax.eval_shape(Improved(3).init, KEY, TOKENS)
    with pytest.raises(ValueError, match=r"10 features of the value.*num_heads=4"):
        jax.eval_shape(Improved(4, v_features=10).init, KEY, TOKENS)
    with pytest.raises(NotImplementedError, match="decode"):
        Improved(4, decode=True)
    with pytest.raises(kd.ktyping.KTypeCheckError, match="mask"):
        mask = np.ones((2, 1, 4, 5), bool)
        jax.eval_shape(Improved(4).init, KEY, TOKENS, mask=mask)


def test_modules_can_be_hashed_and_compared():
    module = Improved(4, softmax_axis=[-2, -1])
    assert hash(module) == hash(Improved(4, softmax_axis=(-2, -1)))


#
# Flax's attention with the train property
#


def test_dropout_follows_the_mode():
    module = kd.nn.MultiHeadDotProductAttention(4, dropout_rate=0.5)
    variables = random_variables(module, TOKENS, is_training_property=False)
    apply = jax.jit(module.apply, static_argnames="is_training_property")
    run = functools.partial(apply, variables, TOKENS)
    plain = jax.jit(nn.MultiHeadDotProductAttention(4).apply)(variables, TOKENS)
    np.testing.assert_allclose(run(is_training_property=False), plain, atol=1e-6)
    trained = run(is_training_property=True, rngs={"dropout": KEY})
    assert not np.allclose(trained, plain)
    with pytest.raises(ValueError, match="is_training_property"):
        run()


def test_without_dropout_no_mode_is_needed_and_weights_can_be_stored():
    module = kd.nn.MultiHeadDotProductAttention(4)
    _, captured = jax.eval_shape(
        lambda: module.apply(
            random_variables(module, TOKENS),
            TOKENS,
            sow_weights=True,
            mutable=["intermediates"],
        )
    )
    [weights] = captured["intermediates"]["attention_weights"]
    assert weights.shape == (2, 4, 5, 5)


def test_deterministic_is_refused():
    with pytest.raises(ValueError, match=r"MultiHeadDotProductAttention\(determin"):
        kd.nn.MultiHeadDotProductAttention(4, deterministic=True)


#
# Which kernel
#


def spec(*shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize(
    "query, key, capability, chosen",
    [
        (spec(8, 197, 12, 64), spec(8, 197, 12, 64), "9.0", "cudnn"),
        (spec(8, 7, 12, 64), spec(8, 33, 12, 64), "8.0", "cudnn"),
        (spec(7, 2, 128), spec(7, 2, 128), "8.9", "cudnn"),
        (spec(8, 7, 2, 256), spec(8, 7, 2, 256), "9.0", "cudnn"),
        (spec(8, 7, 2, 256), spec(8, 7, 2, 256), "8.0", "weights"),
        (spec(8, 7, 2, 20), spec(8, 7, 2, 20), "9.0", "weights"),
        (spec(8, 7, 2, 64), spec(8, 7, 2, 64), "7.5", "weights"),
        (spec(8, 7, 2, 64), spec(8, 7, 2, 64), "gfx942", "weights"),
        (spec(8, 7, 2, 64), spec(8, 7, 2, 64), None, "weights"),
        (spec(8, 7, 2, 64, dtype=jnp.float32),) * 2 + ("9.0", "weights"),
        (spec(8, 7, 2, 64), spec(8, 7, 2, 64, dtype=jnp.float16), "9.0", "weights"),
    ],
)
def test_kernel_of_cudnn_where_it_can_be_used(query, key, capability, chosen):
    found = attention.choose_implementation(query, key, key, capability=capability)
    assert found == chosen


def test_values_of_another_size_need_the_weights():
    heads, values = spec(8, 7, 2, 64), spec(8, 7, 2, 32)
    found = attention.choose_implementation(heads, heads, values, capability="9.0")
    assert found == "weights"


@pytest.fixture
def kernels(monkeypatch):
    """The kernels that were asked for, on a machine that has a Hopper GPU."""
    asked = []
    real = jax.nn.dot_product_attention

    def spy(*args, implementation, **kwargs):
        asked.append(implementation)
        return real(*args, implementation="xla", **kwargs)

    monkeypatch.setattr(attention, "_gpu_capability", lambda: "9.0")
    monkeypatch.setattr(jax.nn, "dot_product_attention", spy)
    return asked


HALF = RNG.normal(size=(2, 3, 5, 16)).astype(jnp.bfloat16)


@pytest.mark.parametrize("cls", [Improved, kd.nn.MultiHeadDotProductAttention])
def test_module_takes_cudnn_by_itself_and_agrees(cls, kernels):
    dtype = {} if cls is Improved else {"dtype": jnp.bfloat16}
    variables = random_variables(Improved(2, implementation="weights"), HALF)
    fast = jax.jit(cls(2, **dtype).apply)(variables, HALF)
    assert kernels == ["cudnn"]
    plain = jax.jit(Improved(2, implementation="weights").apply)(variables, HALF)
    assert kernels == ["cudnn"]
    assert fast.shape == plain.shape == HALF.shape
    np.testing.assert_allclose(
        fast.astype(np.float32), plain.astype(np.float32), atol=0.05
    )


def test_bias_mask_other_softmax_and_32_bits_use_the_weights(kernels):
    def trace(module, *args, **kwargs):
        jax.eval_shape(lambda: module.init(KEY, *args, **kwargs))

    module = Improved(2)
    trace(module, HALF, mask=np.ones((1, 5, 5), bool))
    trace(module, HALF, bias=np.ones((1, 5, 5), np.float32))
    trace(module, HALF.astype(jnp.float32))
    trace(Improved(2, softmax_axis=-2), HALF)
    flax_like = kd.nn.MultiHeadDotProductAttention(
        2, dtype=jnp.bfloat16, dropout_rate=0.1
    )
    trace(flax_like, HALF, is_training_property=True)
    assert kernels == []
    trace(flax_like, HALF, is_training_property=False)
    assert kernels == ["cudnn"]


def test_forced_kernel_takes_bias_and_mask():
    mask = (RNG.uniform(size=(3, 1, 5, 5)) < 0.7) | np.eye(5, dtype=bool)
    bias = RNG.normal(size=(1, 2, 1, 5)).astype(np.float32)
    inputs = RNG.normal(size=(2, 3, 5, 16)).astype(np.float32)
    variables = random_variables(Improved(2), inputs)

    @jax.jit
    def both(inputs):
        return [
            module.apply(variables, inputs, mask=mask[None], bias=bias[None])
            for module in (Improved(2), Improved(2, implementation="xla"))
        ]

    plain, forced = both(inputs)
    np.testing.assert_allclose(forced, plain, atol=1e-5)


def test_what_a_forced_kernel_cannot_do_is_told():
    with pytest.raises(ValueError, match="softmax_axis=-1"):
        module = Improved(2, implementation="xla", softmax_axis=-2)
        jax.eval_shape(module.init, KEY, TOKENS)
    with pytest.raises(ValueError, match="cudnn, xla, weights"):
        Improved(2, implementation="flash")
    heads = [np.ones((1, 2, 2, 8), np.float32)] * 3
    with pytest.raises(ValueError, match="drop"):
        kd.nn.dot_product_attention(*heads, implementation="xla", dropout_rate=0.5)


def test_function_works_in_a_plain_flax_module():
    forced = functools.partial(kd.nn.dot_product_attention, implementation="xla")
    theirs = nn.MultiHeadDotProductAttention(4, attention_fn=forced)
    variables = random_variables(theirs, TOKENS)

    @jax.jit
    def both(tokens):
        plain = nn.MultiHeadDotProductAttention(4)
        return [module.apply(variables, tokens) for module in (theirs, plain)]

    ours, plain = both(TOKENS)
    np.testing.assert_allclose(ours, plain, atol=1e-5)


def test_weights_that_nobody_reads_cost_nothing():
    tokens = np.ones((1, 64, 32), np.float32)
    module = Improved(2, implementation="xla")
    variables = random_variables(module, tokens)

    def loss(variables, *, capture):
        out, _ = module.apply(
            variables, tokens, capture_intermediates=capture, mutable=["intermediates"]
        )
        return out.sum()

    def flops(**kwargs):
        gradient = jax.jit(jax.grad(functools.partial(loss, **kwargs)))
        return gradient.lower(variables).compile().cost_analysis()["flops"]

    plain = jax.jit(jax.grad(lambda v: module.apply(v, tokens).sum()))
    limit = plain.lower(variables).compile().cost_analysis()["flops"]
    assert flops(capture=True) == limit


def test_filler_of_odd_lengths_is_not_attended_to():
    q, k, v = RNG.normal(size=(3, 2, 5, 3, 8)).astype(np.float32)
    padded = [attention.to_even_length(heads) for heads in (q, k, v)]
    assert [heads.shape[1] for heads, _ in padded] == [6, 6, 6]
    (even_q, lengths), (even_k, _), (even_v, _) = padded
    attend = jax.jit(
        functools.partial(jax.nn.dot_product_attention, implementation="xla")
    )
    result = attend(
        even_q,
        even_k,
        even_v,
        query_seq_lengths=lengths,
        key_value_seq_lengths=lengths,
    )
    expected = attend(q, k, v)
    np.testing.assert_allclose(result[:, :5], expected, rtol=1e-5, atol=1e-6)
    assert attention.to_even_length(even_q)[1] is None


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="cuDNN needs a GPU")
@pytest.mark.parametrize("length", [196, 197])
def test_cudnn_is_differentiated_at_any_length(length):
    keys = jax.random.split(jax.random.key(0), 3)
    heads = [jax.random.normal(k, (2, length, 3, 64), jnp.bfloat16) for k in keys]

    def gradients(implementation):
        def total(heads):
            out = kd.nn.dot_product_attention(*heads, implementation=implementation)
            return jnp.sum(jnp.sin(out.astype(jnp.float32)))

        return jax.jit(jax.grad(total))(heads)

    for ours, plain in zip(gradients("cudnn"), gradients("weights")):
        np.testing.assert_allclose(
            ours.astype(np.float32), plain.astype(np.float32), atol=0.05
        )
