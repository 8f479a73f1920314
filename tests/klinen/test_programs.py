"""What a call compiles to."""

import re

import flax.linen as nn
import jax
import pytest

from kauldron import klinen as knn
from tests.klinen.toy import MLP, AutoEncoder, X

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
