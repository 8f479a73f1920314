"""Layers: dropout, einops, containers; whole models."""

import einops
import flax.errors
import flax.linen as nn
import jax
import numpy as np
import pytest

from kauldron import kd

#
# Dropout
#


ONES = np.ones((50, 10), np.float32)
RNGS = {"dropout": jax.random.PRNGKey(1)}


def _train(model, **kwargs):
    return model.apply({}, ONES, is_training_property=True, **kwargs)


def test_training_zeroes_a_part_and_scales_the_rest():
    out = _train(kd.nn.Dropout(0.5), rngs=RNGS)
    assert set(np.unique(out)) == {0.0, 2.0}


def test_same_numbers_as_flax():
    plain = nn.Dropout(0.3, deterministic=False).apply({}, ONES, rngs=RNGS)
    np.testing.assert_array_equal(_train(kd.nn.Dropout(0.3), rngs=RNGS), plain)


def test_evaluation_is_the_identity_and_needs_no_rng():
    out = kd.nn.Dropout(0.5).apply({}, ONES, is_training_property=False)
    np.testing.assert_array_equal(out, ONES)


def test_rate_zero_needs_no_rng():
    np.testing.assert_array_equal(_train(kd.nn.Dropout(0.0)), ONES)


def test_training_without_rng():
    with pytest.raises(flax.errors.InvalidRngError):
        _train(kd.nn.Dropout(0.5))


def test_without_mode():
    with pytest.raises(ValueError, match="set_train_property"):
        kd.nn.Dropout(0.5).apply({}, ONES, rngs=RNGS)


def test_deterministic_is_refused():
    with pytest.raises(ValueError, match=r"Dropout\(deterministic=.*train property"):
        kd.nn.Dropout(0.5, deterministic=True)


def test_rng_collection_and_broadcast_dims():
    model = kd.nn.Dropout(0.5, broadcast_dims=(0,), rng_collection="noise")
    out = _train(model, rngs={"noise": jax.random.PRNGKey(0)})
    out = np.asarray(out)
    np.testing.assert_array_equal(out, np.broadcast_to(out[:1], out.shape))


@pytest.mark.parametrize(
    "rng", [jax.random.PRNGKey(7), jax.random.key(7), kd.random.PRNGKey(7)]
)
def test_explicit_rng_of_any_kind(rng):
    expected = nn.Dropout(0.5, deterministic=False).apply(
        {}, ONES, rng=jax.random.PRNGKey(7)
    )
    np.testing.assert_array_equal(_train(kd.nn.Dropout(0.5), rng=rng), expected)


def test_documented_model_initialises_and_applies():
    class MyModel(nn.Module):
        is_training = kd.nn.train_property()

        @nn.compact
        def __call__(self, x):
            if self.is_training:
                x = x + jax.random.normal(self.make_rng("default"), x.shape)
            return kd.nn.Dropout(0.5)(nn.Dense(4)(x))

    keys = {name: jax.random.PRNGKey(i) for i, name in enumerate(("params", "default"))}
    init = jax.jit(MyModel().init, static_argnames="is_training_property")
    params = init(keys | RNGS, ONES, is_training_property=True)
    out = MyModel().apply(params, ONES, is_training_property=False)
    expected = nn.Dense(4).apply({"params": params["params"]["Dense_0"]}, ONES)
    np.testing.assert_array_equal(out, expected)


#
# Containers and models
#


X = np.arange(6, dtype=np.float32).reshape(2, 3)
KEY = jax.random.PRNGKey(0)


def run(*layers, **kwargs):
    model = kd.nn.Sequential(layers=layers, inputs="batch.x", **kwargs)
    return model.init_with_output(KEY, X)[0]


def test_layers_are_applied_in_order():
    np.testing.assert_array_equal(run(lambda x: x + 1, lambda x: 2 * x), 2 * (X + 1))


def test_without_layers_it_is_the_identity():
    np.testing.assert_array_equal(run(), X)


def test_output_gets_its_name():
    assert list(jax.eval_shape(lambda: run(nn.Dense(4), outputs="y"))) == ["y"]


def test_tuples_and_mappings_are_spread():
    split = run(lambda x: (x, 1.0), lambda x, n: {"a": x, "b": n}, lambda a, b: a + b)
    np.testing.assert_array_equal(split, X + 1)


@pytest.mark.parametrize("shared, count", [(True, 1), (False, 3)])
def test_repeated_layer_has_weights_of_its_own_or_shared_ones(shared, count):
    model = kd.nn.Sequential.from_repeated(nn.Dense(3), 3, shared_weights=shared)
    assert len(jax.eval_shape(model.init, KEY, X)["params"]) == count


@pytest.mark.parametrize(
    "layers, message",
    [
        ([nn.relu, nn.Dense], r"layers\[1\] \(Dense\): .*call it: Dense\(\.\.\.\)"),
        ([nn.Dense(2), "relu"], r"layers\[1\] \(str\): .*module or a function"),
        (nn.Dense(2), r"`layers` is a list"),
    ],
)
def test_what_is_no_layer_is_told(layers, message):
    with pytest.raises(TypeError, match=message):
        model = kd.nn.Sequential(layers=layers, inputs="batch.x")
        jax.eval_shape(model.init, KEY, X)


def test_error_of_a_layer_names_the_layer():
    with pytest.raises(Exception, match=r"layers\[1\] \(Rearrange\): .*b c d"):
        jax.eval_shape(lambda: run(nn.Dense(2), kd.nn.Rearrange("b c d -> b (c d)")))


def test_layers_are_numbered_with_the_functions_among_them():
    model = kd.nn.Sequential(layers=[nn.Dense(3, name="first"), nn.relu, nn.Dense(2)])
    assert list(jax.eval_shape(model.init, KEY, X)["params"]) == [
        "layers_0",
        "layers_2",
    ]


def test_repeated_layers_are_between_prefix_and_suffix_and_of_the_class():
    class Mine(kd.nn.Sequential):
        pass

    model = Mine.from_repeated(
        lambda x: 2 * x, 3, prefix=[lambda x: x + 1], suffix=[lambda x: -x]
    )
    assert type(model) is Mine
    np.testing.assert_array_equal(model.apply({}, X), -8 * (X + 1))


def test_identity_returns_its_first_argument_and_can_be_seen():
    tree = {"a": X, "b": (1, None)}
    out, captured = kd.nn.Identity().apply({}, tree, 5, k=6, capture_intermediates=True)
    assert out is tree
    assert captured["intermediates"]["__call__"] == (tree,)


def test_einops_layers_agree_with_einops_and_can_be_hashed():
    rearrange = kd.nn.Rearrange("(b c) d -> b d c", axes_lengths={"c": 2})
    expected = einops.rearrange(X, "(b c) d -> b d c", c=2)
    np.testing.assert_array_equal(rearrange.apply({}, X), expected)
    reduce = kd.nn.Reduce("b (d e) -> e b", "max", axes_lengths={"e": 3})
    expected = einops.reduce(X, "b (d e) -> e b", "max", e=3)
    np.testing.assert_array_equal(reduce.apply({}, X), expected)
    same = kd.nn.Rearrange("(b c) d -> b d c", axes_lengths={"c": 2})
    assert hash(rearrange) == hash(same) and rearrange == same
    assert hash(reduce)


def test_wrong_einops_layers_are_told():
    with pytest.raises(ValueError, match=r"'avg'.*min, max, sum, mean, prod"):
        kd.nn.Reduce("b d -> b", "avg")
    with pytest.raises(einops.EinopsError) as error:
        kd.nn.Rearrange("b c d -> b (c d)").apply({}, X)
    assert "Rearrange" in error.value.__notes__[0]
    assert "(2, 3)" in error.value.__notes__[0]


def test_dummy_model_knows_the_answer():
    model = kd.nn.DummyModel()
    assert model.init(KEY) == {}
    for inputs in ((), (X,)):
        assert model.apply({}, *inputs)["logits"].tolist() == [42.0]


@pytest.mark.parametrize(
    "inputs, names",
    [("batch.image", ["image"]), ("batch.a.image", ["a", "image"]), (None, ["inputs"])],
)
def test_autoencoder_names_its_output_after_its_input(inputs, names):
    keys = {} if inputs is None else {"inputs": inputs}
    model = kd.nn.FlatAutoencoder(encoder=nn.Dense(2), decoder=nn.Dense(12), **keys)
    image = np.ones((3, 2, 2, 3), np.float32)
    out, variables = jax.eval_shape(model.init_with_output, KEY, image)
    for name in names:
        [(found, out)] = out.items()
        assert found == name
    assert out.shape == image.shape
    assert set(variables["params"]) == {"encoder", "decoder"}


def test_decoder_of_the_wrong_size_is_told():
    model = kd.nn.FlatAutoencoder(encoder=nn.Dense(2), decoder=nn.Dense(5))
    with pytest.raises(ValueError, match=r"returns 5 features.*need 3"):
        jax.eval_shape(model.init, KEY, X)
