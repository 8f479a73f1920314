"""One module in several places is one module."""

import copy
import pickle

import flax.linen as nn
import jax
import pytest

from kauldron import klinen as knn
from tests.klinen.toy import MLP, AutoEncoder, X, assert_same, differ


class Across(knn.Module):
    """A module as a field, and in the container of another one."""

    shared: nn.Module
    block: nn.Module

    def __call__(self, x):
        return self.block(self.shared(x))


class MadeInSetup(knn.Module):
    def setup(self):
        self.shared = MLP()
        self.pair = AutoEncoder(encoder=self.shared, decoder=MLP())

    def __call__(self, x):
        return self.pair(self.shared(x))


def _same_level():
    part = MLP()
    return AutoEncoder(encoder=part, decoder=part)


def _across():
    part = MLP()
    return Across(shared=part, block=knn.Sequential([part, nn.Dense(8)]))


def test_two_fields_with_one_instance_are_one_module():
    model = _same_level().init_bind(0, X).with_rng(0)
    assert set(model.params) == {"encoder"}
    assert model.encoder is model.decoder
    evaluated = model.eval()
    assert evaluated.encoder is evaluated.decoder
    assert_same(model.encoder.params, model.params["encoder"])
    equal_but_not_shared = AutoEncoder(encoder=MLP(), decoder=MLP()).init_bind(0, X)
    assert set(equal_but_not_shared.params) == {"encoder", "decoder"}


def test_a_field_and_another_modules_container_share_one_set_of_parameters():
    model = _across().init_bind(0, X).with_rng(0)
    assert set(model.params) == {"shared", "block"}
    assert set(model.params["block"]) == {"layers_1"}
    assert model.block.layers[0] is model.shared
    assert_same(model.block.layers[0].params, model.params["shared"])
    parts = model.block.layers[1](model.shared(X))
    assert_same(model.block(X), parts)


def test_the_part_that_does_not_own_the_parameters_finds_them():
    model = _across().init_bind(0, X).with_rng(0)
    f = jax.jit(lambda m, x: m(x))
    assert_same(f(model.block, X), jax.jit(lambda x: model.block(x))(X))
    detached = jax.tree.map(lambda leaf: leaf, model.block)
    assert_same(detached.layers[0].params, model.shared.params)
    assert_same(detached(X), model.block(X))


def test_sharing_in_setup():
    model = MadeInSetup().init_bind(0, X).with_rng(0)
    assert set(model.params) == {"shared", "pair"}
    assert set(model.params["pair"]) == {"decoder"}
    assert model.pair.encoder is model.shared
    detached = jax.tree.map(lambda leaf: leaf, model.pair)
    assert_same(detached(X), model.pair(X))


def test_sharing_survives_derivations_copies_and_transformations():
    model = _across().init_bind(0, X).with_rng(0)
    for other in (
        model.eval(),
        model.with_rng(),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        jax.jit(lambda m: m)(model),
        model.init_bind(1, X),
        model.clone().init_bind(1, X),
    ):
        assert other.block.layers[0] is other.shared
        assert set(other.params["block"]) == {"layers_1"}


def test_changing_one_place_changes_the_other():
    model = _same_level().init_bind(0, X).eval()
    zeros = jax.tree.map(lambda leaf: 0 * leaf, model.decoder.params)
    changed = model.decoder.with_params(zeros)
    assert_same(changed.params, zeros)
    assert_same(changed(X), 0 * X)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_shared_and_equal_modules_are_not_confused_by_jit(mode):
    drop = knn.Dropout(0.5)
    shared = AutoEncoder(encoder=drop, decoder=drop)
    separate = AutoEncoder(encoder=knn.Dropout(0.5), decoder=knn.Dropout(0.5))
    assert shared == separate
    f = jax.jit(lambda m, x: m(x))
    outputs = []
    for raw in (shared, separate):
        model = getattr(raw.init_bind(0, X).with_rng(0), mode)()
        assert_same(f(model, X), model(X))
        outputs.append(model(X))
    assert differ(*outputs) == (mode == "train")
