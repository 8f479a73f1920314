"""Compiled programs: what a call compiles to, and the training loop of the page."""

import pathlib
import re
import runpy

import flax.linen as nn
import jax
import numpy as np
import pytest

from kauldron import klinen as knn
from tests.klinen.toy import MLP, AutoEncoder, X

#
# What a call compiles to
#


WITH_OPTIMIZATIONS = True


class Plain(nn.Module):
    """The auto-encoder without klinen."""

    @nn.compact
    def __call__(self, x, train):
        for name in ("encoder", "decoder"):
            x = PlainMLP(name=name)(x, train)
        return x


class PlainMLP(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(nn.Dense(8)(x))
        x = nn.Dropout(0.5)(x, deterministic=not train)
        return nn.Dense(8)(x)


def _program(fn, *args):
    """Instructions without their names and the source lines they come from."""
    text = jax.jit(fn).lower(*args).compile().as_text()
    text = re.sub(r", metadata={[^}]*}", "", text)
    text = re.sub(r"%[\w.-]+", "%", text)
    return sorted(line.strip() for line in text.splitlines() if " = " in line)


@pytest.mark.parametrize("train", [True, False])
def test_a_bound_call_compiles_to_what_apply_compiles_to(train):
    key = jax.random.PRNGKey(0)
    model = AutoEncoder(encoder=MLP(), decoder=MLP()).init_bind(key, X)
    model = model if train else model.eval()

    def bound(params, key, x):
        return model.with_params(params).with_rng({"dropout": key})(x)

    def plain(params, key, x):
        return Plain().apply({"params": params}, x, train, rngs={"dropout": key})

    ours = _program(bound, model.params, key, X)
    assert len(ours) > 10
    assert ours == _program(plain, model.params, key, X)


def test_a_model_as_argument_adds_nothing_when_it_has_no_keys():
    model = knn.Dense(8).init_bind(0, X)
    ours = _program(lambda model, x: model(x), model, X)
    plain = _program(lambda p, x: nn.Dense(8).apply({"params": p}, x), model.params, X)
    assert ours == plain


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
    assert code in (ROOT / "docs" / "klinen.md").read_text()
    class_and_loop = code.split("import klinen as knn")[1]
    assert len([line for line in class_and_loop.splitlines() if line.strip()]) <= 30
