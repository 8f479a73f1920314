"""Bound models as pytrees under JAX's transformations."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import klinen as knn
from tests.klinen.toy import (
    MLP,
    AutoEncoder,
    Dense,
    Normed,
    X,
    assert_close,
    assert_same,
    auto_encoder,
    differ,
)


class Linear(knn.Module):
    """One layer, some noise, a counter, a flag and a key among the variables."""

    @nn.compact
    def __call__(self, x):
        self.variable("state", "count", lambda: jnp.arange(3))
        self.variable("state", "flag", lambda: jnp.array([True, False]))
        self.variable("state", "key", lambda: jax.random.key(3))
        self.variable("state", "mean", lambda: jnp.zeros(3))
        keep = jax.random.bernoulli(self.make_rng("dropout"), 0.5, x.shape)
        return Dense(8)(x * keep)


@pytest.fixture(scope="module")
def linear():
    return Linear().init_bind(0, X).with_rng(1)


@jax.jit
def _loss(model, x=X):
    return jnp.mean((model(x) - 1) ** 2)


def _names(tree):
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [jax.tree_util.keystr(path) for path, _ in leaves]


def test_paths_of_leaves():
    model = auto_encoder().with_rng(0)
    names = _names(model)
    assert ".params['encoder']['Dense_0']['kernel']" in names
    assert names[-2:] == [".rngs['default']", ".rngs['dropout']"]
    assert ".collections['batch_stats']['BatchNorm_0']['mean']" in _names(
        Normed().init_bind(0, X)
    )


def test_raw_modules_are_leaves():
    raw = MLP()
    assert jax.tree.leaves(raw) == [raw]
    assert jax.tree.leaves(knn.Dense(3)) == [knn.Dense(3)]


def test_round_trip_keeps_everything(linear):
    for model in (linear, linear.eval()):
        same = jax.tree.map(lambda leaf: leaf, model)
        assert type(same) is type(model)
        assert same.training == model.training
        assert_same(same.rngs, model.rngs)
        assert_same(same.params, model.params)
        state, old = same.collections["state"], model.collections["state"]
        assert {k: v.dtype for k, v in state.items()} == {
            k: v.dtype for k, v in old.items()
        }
        assert_same(state["count"], old["count"])
        assert_same(state["flag"], old["flag"])
        assert_same(jax.random.key_data(state["key"]), jax.random.key_data(old["key"]))
        assert_same(same(X), model(X))


def test_all_leaves_are_floating_point(linear):
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(linear)} == {"float32"}


@pytest.mark.parametrize(
    "leaf", [None, "text", object(), jax.ShapeDtypeStruct((), jnp.float32), (1, 2)]
)
def test_unflatten_takes_anything(leaf, linear):
    treedef = jax.tree.structure(linear)
    made = treedef.unflatten([leaf] * treedef.num_leaves)
    assert type(made) is type(linear)
    assert made.training is True
    assert isinstance(repr(made), str)
    assert jax.tree.leaves(made, is_leaf=lambda x: x is leaf)[0] is leaf


def test_trees_of_models_are_compared_by_definition():
    a, b = auto_encoder(0).with_rng(0), auto_encoder(1).with_rng(9)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert hash(jax.tree.structure(a)) == hash(jax.tree.structure(b))
    other = AutoEncoder(encoder=MLP(), decoder=MLP(rate=0.125)).init_bind(0, X)
    assert jax.tree.structure(other.with_rng(0)) != jax.tree.structure(a)
    assert jax.tree.structure(auto_encoder()) != jax.tree.structure(a)
    assert jax.tree.structure(a.encoder) != jax.tree.structure(a)


def test_definitions_need_not_be_hashable_and_arrays_count_by_identity():
    class Net(knn.Module):
        sizes: list
        table: object
        options: dict = dataclasses.field(default_factory=dict)

        @nn.compact
        def __call__(self, x):
            return Dense(self.sizes[0])(x) + self.table[0]

    traces = []

    @jax.jit
    def f(model, x):
        traces.append(1)
        return model(x)

    table = np.ones(2, np.float32)
    for _ in range(2):
        f(Net([8], table, {"a": [1]}).init_bind(0, X), X)
    assert len(traces) == 1
    f(Net([8], table.copy(), {"a": [1]}).init_bind(0, X), X)
    f(Net([8], table, {"a": [2]}).init_bind(0, X), X)
    assert len(traces) == 3


def test_the_static_part_holds_no_arrays(linear):
    model = jax.tree.map(lambda leaf: leaf, linear)
    static = jax.tree.structure(model).node_data()[1]
    root = static.view.root
    assert (root.params, root.collections, root.rngs) == (None, None, None)


def test_gradients_are_those_of_the_functional_form(linear):
    def functional(params):
        variables = {"params": params, **linear.collections}
        return jnp.mean((Linear().apply(variables, X, rngs=linear.rngs) - 1) ** 2)

    expected = jax.jit(jax.grad(functional))(linear.params)
    for model in (linear, linear.param_tree_on()):
        value, grads = jax.jit(jax.value_and_grad(_loss))(model)
        assert_close(grads.params, expected)
        assert_close(value, _loss(linear))
    assert type(grads) is type(linear)


def test_gradients_without_keys():
    model = knn.Dense(8).init_bind(0, X)
    grads = jax.grad(_loss)(model)
    assert_same(jax.tree.leaves(grads), jax.tree.leaves(grads.params))
    assert differ(grads.params["bias"], np.zeros(8))


def test_gradients_of_keys_and_integers_are_zero(linear):
    grads = jax.jit(jax.grad(_loss))(linear)
    paths = jax.tree_util.tree_flatten_with_path(grads)[0]
    state = [leaf for path, leaf in paths if path[0].name != "params"]
    assert len(state) == 6
    assert not any(np.asarray(leaf).any() for leaf in state)


def test_sgd_by_tree_map_improves_and_keeps_the_keys(linear):
    @jax.jit
    def update(model):
        grads = jax.grad(_loss)(model)
        return jax.tree.map(lambda p, g: p - 0.1 * g, model, grads)

    model = linear
    for _ in range(5):
        model = update(model)
    assert _loss(model) < _loss(linear)
    assert_same(model.rngs, linear.rngs)
    assert_same(model.collections["state"]["count"], jnp.arange(3))


def test_adam_on_models_improves_and_keeps_the_keys(linear):
    optimizer = optax.adam(1e-1)

    @jax.jit
    def update(model, state):
        grads = jax.grad(_loss)(model)
        updates, state = optimizer.update(grads, state, model)
        return optax.apply_updates(model, updates).with_rng(), state

    model, state = linear, optimizer.init(linear)
    expected = linear
    for _ in range(10):
        model, state = update(model, state)
        expected = expected.with_rng()
    assert _loss(model.with_rng(1)) < _loss(linear)
    assert_same(model.rngs, expected.rngs)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_casting_all_leaves_keeps_keys_and_integers(dtype, linear):
    to_dtype = jax.jit(lambda m: jax.tree.map(lambda leaf: leaf.astype(dtype), m))
    cast = to_dtype(linear)
    assert cast.params["Dense_0"]["kernel"].dtype == dtype
    assert_same(cast.rngs, linear.rngs)
    assert_same(cast.collections["state"]["count"], jnp.arange(3))
    y = jax.jit(lambda model: model(X))(cast)
    assert np.isfinite(np.asarray(y, np.float32)).all()


def test_a_model_of_zeros_can_be_called(linear):
    zeros = jax.tree.map(lambda leaf: leaf * 0, linear)
    assert_same(zeros(X), 0 * X)


def test_vmap_over_models():
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    make = jax.vmap(lambda key: Linear().init_bind(key, X).with_rng(key))
    ensemble = jax.jit(make)(keys)
    call = jax.jit(jax.vmap(lambda model, x: model(x), in_axes=(0, None)))
    singles = [
        jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], ensemble) for i in range(3)
    ]
    expected = np.stack([single(X) for single in singles])
    assert_close(call(ensemble, X), expected)
    assert ensemble.rngs["dropout"].shape == (3, 2)


def test_scan_with_the_model_as_carry(linear):
    @jax.jit
    def run(model):
        def body(model, _):
            grads = jax.grad(_loss)(model)
            model = jax.tree.map(lambda p, g: p - 0.1 * g, model, grads)
            return model.with_rng(), model(X).mean()

        return jax.lax.scan(body, model, length=3)

    model, means = run(linear)
    assert means.shape == (3,)
    assert_same(model.rngs, linear.with_rng().with_rng().with_rng().rngs)


def test_device_put_donation_and_output_of_jit(linear):
    model = jax.device_put(linear, jax.devices()[0])
    moved = jax.jit(lambda m: m.with_rng(), donate_argnums=0)(
        jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)), model)
    )
    assert_same(moved.rngs, linear.with_rng().rngs)
    assert_same(moved(X), linear.with_rng()(X))


def test_no_tracer_survives_its_trace(linear):
    with jax.check_tracer_leaks():

        @jax.jit
        def f(model, x):
            inner = jax.tree.map(lambda leaf: leaf * 1.0, model)
            return inner.with_rng()(x), model.eval()(x), linear.with_rng()(x)

        f(linear, X)
    assert not any(
        isinstance(leaf, jax.core.Tracer)
        for leaf in jax.tree.leaves((linear, linear.rngs, linear.collections))
    )
    assert_same(linear(X), linear(X))


def test_a_concrete_model_flattened_inside_a_trace_stays_concrete():
    model = MLP().init_bind(0, X).with_rng(5)
    jax.jit(lambda x: jax.tree.map(lambda leaf: leaf + x, model).params)(1.0)
    assert not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(model))


# ----------------------------------------------------------------------------------
# Only the parameters
# ----------------------------------------------------------------------------------


def test_param_tree_on_exposes_only_parameters(linear):
    model = linear.param_tree_on()
    assert_same(jax.tree.leaves(model), jax.tree.leaves(linear.params))
    assert all(name.startswith(".params") for name in _names(model))
    assert_same(model.rngs, linear.rngs)
    assert_same(model(X), linear(X))
    assert len(jax.tree.leaves(model.eval().with_rng())) == 2
    off = jax.tree.map(lambda leaf: leaf, model).param_tree_off()
    assert jax.tree.structure(off) == jax.tree.structure(linear)


def test_param_tree_on_survives_weight_decay(linear):
    optimizer = optax.adamw(1e-1, weight_decay=1.0)

    @jax.jit
    def update(model):
        params = model.param_tree_on()
        grads = jax.grad(_loss)(params)
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        return optax.apply_updates(params, updates).param_tree_off()

    model = update(linear)
    assert_same(model.rngs, linear.rngs)
    assert differ(model.params["Dense_0"]["kernel"], linear.params["Dense_0"]["kernel"])


def test_param_tree_on_never_reuses_stale_keys(linear):
    f = jax.jit(lambda model, x: model(x))
    first = f(linear.param_tree_on(), X)
    second = f(linear.with_rng(7).param_tree_on(), X)
    assert differ(first, second)
    assert_close(second, linear.with_rng(7)(X))


def test_param_tree_on_of_a_handle():
    model = auto_encoder().with_rng(0)
    leaves = jax.tree.leaves(model.encoder.param_tree_on())
    assert_same(leaves, jax.tree.leaves(model.encoder.params))
