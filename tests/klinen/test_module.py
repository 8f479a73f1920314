"""Calls of bound models and what they may not do."""

import dataclasses

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import klinen as knn
from tests.klinen.toy import (
    MLP,
    AutoEncoder,
    Dense,
    Normed,
    SetupNet,
    X,
    assert_close,
    assert_same,
    auto_encoder,
    differ,
)


class Methods(knn.Module):
    """All kinds of methods and other attributes."""

    encoder: nn.Module
    size: int = 3

    def __call__(self, x):
        return self.encode(x) + 1

    def encode(self, x, *, rngs=0, method=0, mutable=0, variables=0):
        return self.encoder(x) + rngs + method + mutable + variables

    @nn.compact
    def project(self, x):
        return Dense(8)(self.encoder(x))

    def double_size(self):
        return 2 * self.size

    @nn.nowrap
    def name_of_encoder(self):
        return type(self.encoder).__name__

    @classmethod
    def make(cls):
        return cls(encoder=MLP(), size=7)

    @staticmethod
    def add(a, b):
        return a + b

    @property
    def alias(self):
        return self.encoder


class NameScoped(knn.Module):
    @nn.compact_name_scope
    def scoped(self, x):
        return Dense(8)(x)


@pytest.fixture(scope="module")
def model():
    return Methods(encoder=MLP()).init_bind(0, X, method="project").with_rng(0)


def test_public_methods_run_inside_flax(model):
    assert_same(model(X), model.encode(X) + 1)
    assert model.project(X).shape == (4, 8)
    assert model.double_size() == 6
    assert "Run" not in (model.encode.__doc__ or "")
    assert model.encode.__name__ == "encode"


def test_arguments_may_have_the_names_of_flaxs_own(model):
    y = model.encode(X, rngs=1, method=2, mutable=3, variables=4)
    assert_close(y, model.encode(X, rngs=10))


def test_other_attributes_are_plain_python(model):
    assert model.name_of_encoder() == "MLP"
    assert model.add(1, 2) == 3
    assert_same(model.alias(X), model.encoder(X))
    assert model.alias is model.encoder
    made = model.make()
    assert type(made) is Methods and made.size == 7
    with pytest.raises(ValueError, match="init_bind"):
        made.params


def test_methods_with_their_own_name_scope():
    model = NameScoped().init_bind(0, X, method="scoped")
    assert_same(
        model.scoped(X),
        Dense(8).apply({"params": model.params["scoped"]["Dense_0"]}, X),
    )


def test_methods_of_handles():
    outer = AutoEncoder(encoder=Methods(encoder=MLP()), decoder=MLP()).init_bind(0, X)
    outer = outer.eval()
    assert_same(outer.encoder.encode(X), outer.encoder.encoder(X))
    assert outer.encoder.double_size() == 6
    assert outer.encoder.name_of_encoder() == "MLP"


def test_hyper_parameter_methods_work_on_raw_modules():
    assert Methods(encoder=MLP()).double_size() == 6


def test_raw_calls_say_what_to_do():
    linen_child = AutoEncoder(encoder=Dense(8), decoder=Dense(8))
    for raw in (MLP(), linen_child, knn.Dense(8), knn.Sequential([Dense(8)])):
        with pytest.raises(
            flax.errors.CallCompactUnboundModuleError, match=r"model\.init_bind\(key"
        ):
            raw(X)


def test_raw_calls_that_need_setup_say_what_to_do():
    with pytest.raises(AttributeError, match=r"\"scale\".*model\.init_bind\(key"):
        SetupNet()(X)


def test_setup_cannot_be_called():
    model = SetupNet().init_bind(0, X)
    with pytest.raises(flax.errors.CallSetupUnboundModuleError):
        model.setup()


def test_flax_api_on_a_bound_model_acts_on_the_definition():
    model = auto_encoder().with_rng(0).eval()
    key = jax.random.PRNGKey(1)
    variables = model.init(key, X)
    y = model.apply(variables, X, rngs={"dropout": key})
    raw = AutoEncoder(encoder=MLP(), decoder=MLP(rate=0.25))
    assert_same(y, raw.apply(variables, X, rngs={"dropout": key}))
    z = model.apply(variables, X, rngs={"dropout": key}, method=model.__call__)
    assert_same(y, z)
    assert_same(model.bind(variables, rngs={"dropout": key})(X), y)
    assert "AutoEncoder Summary" in model.tabulate(key, X)
    _, other = model.init_with_output(key, X)
    assert_same(other, variables)


def test_calls_change_nothing():
    model = Normed().init_bind(0, X)
    before = jax.tree.map(lambda leaf: leaf, model)
    assert_same(model(X), model(X))
    assert_same(jax.tree.leaves(model), jax.tree.leaves(before))


def test_every_collection_may_be_written_during_a_call():
    class Writes(knn.Module):
        @nn.compact
        def __call__(self, x):
            dense = Dense(8, name="dense")
            y = dense(x)
            self.put_variable("cache", "new", y)
            if not self.is_initializing():
                dense.put_variable("params", "bias", jnp.ones(8))
            return dense.get_variable("params", "bias"), self.get_variable(
                "cache", "new"
            )

    model = Writes().init_bind(0, X)
    bias, cached = model(X)
    assert_same(bias, jnp.ones(8))
    assert cached.shape == (4, 8)
    assert_same(model.params["dense"]["bias"], jnp.zeros(8))


def test_wrong_shapes_say_what_to_do():
    model = auto_encoder().eval()
    with pytest.raises(flax.errors.ScopeParamShapeError) as caught:
        model(np.ones((4, 5), np.float32))
    message = str(caught.value)
    assert "/encoder/Dense_0" in message and "(5, 8)" in message
    assert "init_bind" in message


def test_a_model_in_a_closure_runs_with_its_own_weights_mode_and_keys():
    teacher = MLP().init_bind(7, X).with_rng(3)
    modes = []

    class Student(knn.Module):
        @nn.compact
        def __call__(self, x):
            modes.append(self.training)
            target = teacher(x)
            modes.append(self.training)
            return Dense(8)(x), target

    student = Student().init_bind(0, X)
    assert set(student.params) == {"Dense_0"}
    assert_same(student(X)[1], teacher(X))
    assert_same(student.eval()(X)[1], teacher(X))
    assert modes[-2:] == [False, False]
    y = jax.jit(lambda s, x: s(x)[1])(student.eval(), X)
    assert_same(y, jax.jit(lambda t, x: t(x))(teacher, X))


def test_errors_of_a_model_in_a_closure_are_about_that_model():
    teacher = MLP().init_bind(7, X)

    class Student(knn.Module):
        def __call__(self, x):
            return teacher(x)

    with pytest.raises(flax.errors.InvalidRngError, match=r"at 'Dropout_0'.*with_rng"):
        Student().init_bind(0, X)


def test_a_bound_model_in_a_field_is_only_a_definition():
    trained = auto_encoder(seed=3).with_rng(0).eval()
    for part in (trained, trained.encoder):
        for make in (lambda p: AutoEncoder(encoder=p, decoder=MLP()), nn.Sequential):
            raw = make([part, part]) if make is nn.Sequential else make(part)
            variables = raw.init(jax.random.PRNGKey(0), X)
            kernels = [leaf for leaf in jax.tree.leaves(variables) if leaf.ndim == 2]
            old = jax.tree.leaves(part.params)
            assert all(differ(k, o) for k in kernels for o in old if o.ndim == 2)
    outer = AutoEncoder(encoder=trained.encoder, decoder=MLP())
    model = outer.init_bind(0, X).with_rng(0)
    assert model.training
    expected = AutoEncoder(encoder=MLP(), decoder=MLP()).init_bind(0, X).with_rng(0)
    assert_same(model(X), expected(X))
    assert jax.tree.structure(model) == jax.tree.structure(expected)


@pytest.mark.parametrize(
    "act",
    [
        lambda m: m.eval(),
        lambda m: m.train(),
        lambda m: m.with_rng(0),
        lambda m: m.init_bind(0, X),
        lambda m: m.capture_intermediates(),
        lambda m: m.rngs,
        lambda m: m.param_tree_on(),
    ],
)
def test_inside_a_call_the_outer_api_is_an_error(act):
    class Net(knn.Module):
        child: nn.Module

        @nn.compact
        def __call__(self, x):
            act(self.child)
            return x

    with pytest.raises(RuntimeError, match=r"kd\.nn\.set_train_property"):
        Net(MLP()).init_bind(0, X)


@pytest.mark.parametrize(
    "act",
    [
        lambda m: m.eval(),
        lambda m: m.train(),
        lambda m: m.with_rng(0),
        lambda m: m.params,
        lambda m: m.rngs,
        lambda m: m.training,
        lambda m: m.collections,
        lambda m: m.variables,
        lambda m: m.capture_intermediates(),
        lambda m: m.call_with_intermediate(X),
        lambda m: m.call_and_update(X),
        lambda m: m.with_params({}),
        lambda m: m.with_variables({}),
        lambda m: m.param_tree_on(),
        lambda m: m.param_tree_off(),
    ],
)
def test_before_init_bind_the_api_is_an_error(act):
    with pytest.raises(ValueError, match=r"before calling `\.init_bind\(\)`"):
        act(MLP())


def test_attributes_are_frozen():
    model = auto_encoder()
    for name in ("encoder", "new", "training", "params"):
        with pytest.raises(flax.errors.SetAttributeFrozenModuleError, match="replace"):
            setattr(model, name, MLP())
    with pytest.raises(flax.errors.SetAttributeFrozenModuleError):
        del model.encoder
    with pytest.raises(ValueError):
        model.params["encoder"] = {}
    with pytest.raises(flax.errors.SetAttributeFrozenModuleError):
        model.encoder.rate = 0.1


def test_replace_clone_and_copy_make_raw_modules():
    model = auto_encoder()
    for changed in (
        dataclasses.replace(model, encoder=MLP(rate=0.125)),
        model.clone(encoder=MLP(rate=0.125)),
        model.copy(encoder=MLP(rate=0.125)),
    ):
        assert type(changed) is AutoEncoder
        assert changed.encoder.rate == 0.125
        assert type(changed.decoder) is MLP and changed.decoder.rate == 0.25
        with pytest.raises(ValueError, match="init_bind"):
            changed.params
    again = dataclasses.replace(model).init_bind(0, X).with_params(model.params)
    assert_same(again.eval()(X), model.eval()(X))


def test_equality_hash_and_repr_are_those_of_the_definition():
    model = auto_encoder()
    raw = AutoEncoder(encoder=MLP(), decoder=MLP(rate=0.25))
    assert model == raw and raw == model
    assert model != AutoEncoder(encoder=MLP(), decoder=MLP())
    assert model.encoder == MLP() and model != 3
    assert hash(model) == hash(raw)
    text = repr(model.with_rng(0).eval())
    assert text.startswith(repr(raw))
    last = text.splitlines()[-1]
    assert last == "# bound: eval mode, 288 parameters, rngs: default, dropout"
    assert "Array" not in text


def test_models_are_equal_if_their_definitions_are():
    model = auto_encoder()
    same = (
        model.eval(),
        model.with_rng(0),
        auto_encoder(),
        model.with_params(jax.tree.map(jnp.zeros_like, model.params)),
    )
    assert all(model == other and other == model for other in same)
    assert {model, *same, model.unbind()[0]} == {model}
    assert model.encoder == model.encoder.eval() and model.encoder != model.decoder
    assert isinstance(hash(knn.Sequential([Dense(8)]).init_bind(0, X)), int)


def test_programs_of_equal_models_are_never_mixed_up():
    first, second = knn.Dense(8).init_bind(0, X), knn.Dense(8).init_bind(1, X)
    static = jax.jit(lambda model, x: model(x), static_argnums=0)
    for model in (first, second):
        for transform in (jax.jit, jax.checkpoint):
            with pytest.raises(TypeError, match=r"jax\.jit\(lambda x: model\(x\)\)"):
                transform(model)(X)
            assert_close(transform(lambda x: model(x))(X), model(X))
            assert_close(transform(model.__call__)(X), model(X))
        with pytest.raises((TypeError, ValueError), match="hash"):
            static(model, X)
        assert_close(jax.vmap(model)(X), model(X))
    call = jax.jit(lambda model, x: model(x))
    dropout = knn.Dropout(0.5).init_bind(0, X).with_rng(0)
    for model in (dropout, dropout.eval(), dropout.with_rng()):
        assert_same(call(model, X), model(X))


def test_unbind_gives_the_module_and_its_variables():
    model = auto_encoder()
    raw, variables = model.unbind()
    assert type(raw) is AutoEncoder
    key = jax.random.PRNGKey(0)
    rngs = {"dropout": key}
    y = raw.apply(variables, X, rngs=rngs)
    assert_same(y, model.with_rng(rngs)(X))
    encoder, variables = model.encoder.unbind()
    assert_same(variables["params"], model.params["encoder"])
    assert type(encoder) is MLP
    with pytest.raises(flax.errors.CallUnbindOnUnboundModuleError):
        MLP().unbind()


def test_missing_attributes_are_explained():
    model = auto_encoder()
    with pytest.raises(AttributeError, match=r"'encodr'.*encoder, decoder"):
        model.encodr
    with pytest.raises(AttributeError, match=r"'nothing'.*width"):
        SetupNet().init_bind(0, X).nothing
    assert not hasattr(model, "_repr_html_")
