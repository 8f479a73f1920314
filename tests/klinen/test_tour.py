"""A first tour: what a newcomer writes, line by line."""

import dataclasses
import pathlib
import runpy

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import FrozenDict

from kauldron import kd
from kauldron import klinen as knn
from tests.klinen.toy import Dense, assert_close, assert_same, differ

BATCH = 4


class MLP(knn.Module):
    @nn.compact
    def __call__(self, x):
        x = Dense(8)(x)
        x = nn.Dropout(0.5)(x, deterministic=not self.training)
        return Dense(8)(x)


class AutoEncoder(knn.Module):
    encoder: knn.Module
    decoder: knn.Module

    @nn.compact
    def __call__(self, x):
        x = self.encoder(x)
        return self.decoder(x)


class Sequential(knn.Module):
    childs: list[nn.Module]

    tmp_values: knn.Intermediate[list[jax.Array]] = dataclasses.field(
        init=False, default_factory=list
    )

    @nn.compact
    def __call__(self, x):
        for child in self.childs:
            x = child(x)
            self.tmp_values.append(x)
        return x


@pytest.fixture(scope="module")
def rng():
    return jax.random.PRNGKey(0)


@pytest.fixture(scope="module")
def x():
    values = np.linspace(-1, 1, BATCH * 8, dtype=np.float32)
    return jnp.asarray(values.reshape(BATCH, 8))


@pytest.fixture(scope="module")
def raw():
    return AutoEncoder(encoder=MLP(), decoder=MLP())


@pytest.fixture(scope="module")
def model(raw, rng):
    return raw.init_bind(rng, jnp.zeros((BATCH, 8)))


def test_a_definition_has_no_parameters(raw):
    assert isinstance(raw, nn.Module)
    assert raw == AutoEncoder(encoder=MLP(), decoder=MLP())
    with pytest.raises(ValueError, match="init_bind"):
        raw.params


def test_init_bind_returns_a_new_object_and_leaves_the_old_one(raw, rng, x):
    before = dict(vars(raw))
    model = raw.init_bind(rng, x)
    assert model is not raw
    assert vars(raw) == before
    with pytest.raises(flax.errors.CallCompactUnboundModuleError, match=r"\.init_bind"):
        raw(x)


def test_model_and_sub_module_are_called_directly(model, x):
    model = model.eval()
    y = model(x)
    assert y.shape == (BATCH, 8)
    assert_same(model.decoder(model.encoder(x)), y)


def test_a_model_without_randomness_needs_no_rng(x):
    model = knn.Dense(8).init_bind(0, x)
    assert model(x).shape == (BATCH, 8)
    assert model.rngs == {}


def test_calls_are_reproducible_until_the_rng_changes(model, rng, x):
    model = model.with_rng(rng)
    assert_same(model(x), model(x))
    assert differ(model(x), model.with_rng(jax.random.PRNGKey(7))(x))


def test_one_key_stands_for_all_streams_by_folding_in_their_names(model, rng, x):
    by_name = {
        name: kd.random.fold_in_str(rng, name) for name in ("dropout", "default")
    }
    assert_same(model.with_rng(rng)(x), model.with_rng(by_name)(x))
    assert differ(model.with_rng(rng)(x), model.with_rng({"dropout": rng})(x))


def test_with_rng_without_key_goes_on_from_the_current_one(model, rng, x):
    def chain():
        current, outputs = model.with_rng(rng), []
        for _ in range(4):
            outputs.append(current(x))
            current = current.with_rng()
        return outputs

    outputs = chain()
    assert_same(outputs, chain())
    pairs = [(a, b) for i, a in enumerate(outputs) for b in outputs[:i]]
    assert all(differ(a, b) for a, b in pairs)


def test_dropout_without_rng_is_an_error_that_says_what_to_do(model, x):
    with pytest.raises(flax.errors.InvalidRngError) as caught:
        model(x)
    message = str(caught.value)
    assert "encoder/Dropout_0" in message
    assert "'dropout'" in message
    assert "model.with_rng(key)" in message


def test_with_rng_without_earlier_rng_is_an_error(model):
    with pytest.raises(ValueError, match=r"with_rng\(key\)` first"):
        model.with_rng()


def test_mode_switches_return_copies_and_reach_all_parts(model):
    assert model.training is True
    evaluated = model.eval()
    assert evaluated.training is False
    assert evaluated.encoder.training is False
    assert model.training is True
    assert model.encoder.training is True
    assert evaluated.train().decoder.training is True
    assert evaluated.training is False


def test_in_eval_mode_dropout_is_the_identity(x):
    class Drop(knn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.5)(x, deterministic=not self.training)

    model = Drop().init_bind(0, x)
    assert_same(model.eval()(x), x)
    assert differ(model.with_rng(0)(x), x)


def test_params_at_every_level(model):
    assert isinstance(model.params, FrozenDict)
    assert isinstance(model.encoder.params, FrozenDict)
    assert_same(model.params["encoder"], model.encoder.params)
    assert_same(model.encoder.params["Dense_0"], model.params["encoder"]["Dense_0"])
    assert set(model.encoder.params) == {"Dense_0", "Dense_1"}


def test_a_jitted_step_may_switch_the_mode(model, rng, x):
    @jax.jit
    def eval_step(model: knn.Model, x, y):
        model = model.eval()
        return jnp.mean((model(x) - y) ** 2)

    loss = eval_step(model.with_rng(rng), x, x)
    assert_close(loss, jnp.mean((model.eval()(x) - x) ** 2))
    assert knn.Model is knn.Module


def test_intermediates_are_captured_in_a_block(x, rng):
    model = AutoEncoder(
        encoder=Sequential(childs=[nn.Dense(8), nn.Dense(8), nn.Dense(8)]),
        decoder=MLP(),
    )
    model = model.init_bind(rng, x).with_rng(rng)
    with model.capture_intermediates() as intermediates:
        y = model(x)
    assert_same(y, model(x))
    shapes = [value.shape for value in intermediates.encoder.tmp_values]
    assert shapes == [(BATCH, 8)] * 3

    y2, again = model.call_with_intermediate(x)
    assert_same(y2, y)
    assert_same(again.encoder.tmp_values, intermediates.encoder.tmp_values)
    assert len(model.call_with_intermediates(x)[1].encoder.tmp_values) == 3


def test_plain_calls_work_with_intermediate_fields_and_keep_nothing(x):
    model = Sequential(childs=[nn.Dense(8)]).init_bind(0, x)
    expected = x @ model.params["childs_0"]["kernel"]
    assert_close(model(x), expected)
    with pytest.raises(AttributeError, match="can only be accessed inside module func"):
        model.tmp_values


def test_both_spellings_of_call_with_intermediates_are_one_function():
    module = knn.Module
    assert module.call_with_intermediate is module.call_with_intermediates


def test_a_whole_round(x):
    class Classifier(knn.Module):
        trunk: nn.Module
        head: nn.Module

        def __call__(self, x):
            return self.head(self.trunk(x))

    t = jnp.ones((BATCH, 8))
    net = Classifier(
        trunk=knn.Sequential([knn.Dense(8), knn.Dropout(0.1)]), head=nn.Dense(8)
    )
    net = net.init_bind(0, jax.ShapeDtypeStruct((BATCH, 8), jnp.float32)).with_rng(1)

    @jax.jit
    def update(net, x, t):
        grads = jax.grad(lambda n: ((n(x) - t) ** 2).mean())(net)
        net = jax.tree.map(lambda p, g: p - 0.1 * g, net, grads)
        return net.with_rng()

    before = ((net.eval()(x) - t) ** 2).mean()
    for _ in range(5):
        net = update(net, x, t)
    assert ((net.eval()(x) - t) ** 2).mean() < before
    features = net.eval().trunk(x)
    weights = net.trunk.params["layers_0"]
    assert_close(features, x @ weights["kernel"] + weights["bias"])
    assert np.isfinite(net(x)).all()


#
# The training loop of the page and of the example
#


ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "klinen_digits.py"


@pytest.fixture(scope="module")
def trained():
    return runpy.run_path(str(EXAMPLE))


@pytest.mark.slow
def test_it_recognises_digits(trained):
    assert trained["accuracy"] > 0.95


def test_the_trained_model_is_an_ordinary_model(trained):
    model, x = trained["model"], trained["x"]
    assert model.training is True
    assert sorted(model.rngs) == ["default", "dropout"]
    assert np.isfinite(model(x[:3])).all()


def test_the_page_shows_this_very_loop():
    code = EXAMPLE.read_text().split('"""\n', 1)[1].strip()
    assert code in (ROOT / "docs" / "libraries" / "klinen.md").read_text()
    class_and_loop = code.split("import klinen as knn")[1]
    assert len([line for line in class_and_loop.splitlines() if line.strip()]) <= 30
