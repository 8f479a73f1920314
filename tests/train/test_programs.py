"""Initial values are computed by few programs, and are those of one program."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd
from kauldron.train import programs
from kauldron.train.programs import compute_in_parts
from tests.train.toy import make_trainer

REPLICATED = kd.sharding.REPLICATED


@pytest.fixture(autouse=True)
def small_models_too(monkeypatch):
    monkeypatch.setattr(programs, "_FEW_RESULTS", 0)


def _compute(fn):
    return compute_in_parts(
        jax.jit(fn).trace(), lambda specs: [REPLICATED] * len(jax.tree.leaves(specs))
    )


def _compiled(caplog, fn):
    caplog.clear()
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        result = fn()
    return result, re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text)


class Layer(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        return x + nn.Dense(self.width)(nn.gelu(nn.LayerNorm()(x)))


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x))
        return Layer(self.width)(x)


class Tower(nn.Module):
    depth: int
    block: type[nn.Module] = Block
    width: int = 12

    @nn.compact
    def __call__(self, x):
        for _ in range(self.depth):
            x = self.block(self.width)(x)
        return nn.Dense(3)(x)


def _init(model, key=None):
    return lambda: model.init(
        jax.random.PRNGKey(0) if key is None else key(), jnp.ones((2, 5, 12))
    )


def test_layers_that_are_alike_share_their_programs(caplog):
    _, few = _compiled(caplog, lambda: _compute(_init(Tower(2, width=12))))
    _, more = _compiled(caplog, lambda: _compute(_init(Tower(4, width=12))))
    assert few
    assert more == []


class Scanned(nn.Module):
    @nn.compact
    def __call__(self, x):
        def step(block, x, _):
            return block(x), None

        layers = nn.scan(
            step, variable_axes={"params": 0}, split_rngs={"params": True}, length=3
        )
        return layers(Layer(12), x, None)[0]


def _rising(key, shape, dtype):
    """Other numbers than random ones: those take long to compile."""
    return jnp.sqrt(jnp.arange(np.prod(shape), dtype=dtype)).reshape(shape)


class DataDependent(nn.Module):
    """Initialises from what it sees, through an earlier layer."""

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(4, kernel_init=_rising)(x)
        mean = self.variable("stats", "mean", lambda: x.mean(axis=0))
        scale = self.param("scale", lambda key: x.std() + jax.random.uniform(key, (4,)))
        return (x - mean.value) * scale


class Tables(nn.Module):
    """Two parameters whose initialisers differ in an array alone."""

    @nn.compact
    def __call__(self, x):
        for index in range(2):
            table = jnp.arange(12.0) * (index + 1)
            make = jax.jit(lambda table=table: jax.nn.softplus(table))
            x = x + self.param(f"table{index}", lambda key, make=make: make())
        return x


class Printing(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.Dense(3)(x)
        jax.debug.callback(lambda y: None, y)
        return y


def _name(model):
    return type(model).__name__


def _assert_values_are_those_of_one_program(model):
    fn = _init(model)
    expected = jax.jit(fn)()
    jax.tree.map(np.testing.assert_array_equal, _compute(fn), expected)


@pytest.mark.parametrize(
    "model",
    [
        Tower(2),
        Tower(2, block=nn.remat(Layer)),
        Printing(),
        nn.BatchNorm(use_running_average=False),
    ],
    ids=_name,
)
def test_values_are_those_of_one_program(model):
    _assert_values_are_those_of_one_program(model)


@pytest.mark.usefixtures("as_for_users")
@pytest.mark.parametrize(
    "model",
    [nn.Dense(3), Scanned(), DataDependent(), Tables()],
    ids=_name,
)
def test_values_are_those_of_one_program_whatever_is_optimized(model):
    _assert_values_are_those_of_one_program(model)


def test_new_style_keys():
    fn = _init(Tower(2, block=Layer), key=lambda: jax.random.key(3, impl="rbg"))
    jax.tree.map(np.testing.assert_array_equal, _compute(fn), jax.jit(fn)())


def test_results_that_are_numbers_keys_or_the_same():
    def fn():
        key = jax.random.key(1)
        x = jax.random.normal(key, (3,))
        return {"a": x, "b": x, "key": key, "two": 2, "int": jnp.int32(4) + 1}

    found, expected = _compute(fn), jax.jit(fn)()
    assert found["key"] == expected["key"]
    assert found["key"].dtype == expected["key"].dtype
    for name in ("a", "b", "two", "int"):
        np.testing.assert_array_equal(found[name], expected[name])
        assert isinstance(found[name], jax.Array)


def test_few_values_are_one_program(caplog, monkeypatch):
    monkeypatch.undo()
    fn = _init(nn.Dense(9))
    values, compiled = _compiled(caplog, lambda: _compute(fn))
    assert len(compiled) == 1
    _, again = _compiled(caplog, lambda: _compute(_init(nn.Dense(9))))
    assert again == []
    jax.tree.map(np.testing.assert_array_equal, values, jax.jit(fn)())


def test_equal_models_with_few_values_share_one_program(caplog, monkeypatch):
    monkeypatch.setattr(programs, "_FEW_RESULTS", 8)

    def init(seed):
        return _init(nn.Dense(11), lambda: jax.random.PRNGKey(seed))

    first, compiled = _compiled(caplog, lambda: _compute(init(0)))
    assert compiled
    again, compiled = _compiled(caplog, lambda: _compute(init(0)))
    assert compiled == []
    jax.tree.map(np.testing.assert_array_equal, again, first)
    other = _compute(init(1))
    jax.tree.map(np.testing.assert_array_equal, other, jax.jit(init(1))())


@pytest.mark.parametrize("few_results", [0, 8])
def test_models_whose_initialisers_differ_in_an_array_alone(few_results, monkeypatch):
    monkeypatch.setattr(programs, "_FEW_RESULTS", few_results)
    for table in (np.arange(3.0), np.arange(3.0) + 1):
        result = _compute(lambda table=table: jnp.sin(1.0) + table)
        np.testing.assert_allclose(result, np.sin(1.0) + table, rtol=1e-6)


def test_models_without_parameters():
    assert _compute(dict) == {}


def test_initialisation_of_a_trainer_falls_into_parts(tmp_path, monkeypatch):
    counts = []

    def counted(*args, **kwargs):
        groups = list(groups_of(*args, **kwargs))
        counts.append(len(groups))
        return groups

    groups_of = programs._groups
    monkeypatch.setattr(programs, "_groups", counted)
    trainer = make_trainer(tmp_path)
    trainer.init_state()
    assert counts[0] >= len(jax.tree.leaves(trainer.state_specs.params)) > 1
