"""Values stored during calls, and how they come out."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
import threading
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from kauldron import klinen as knn
from kauldron.klinen import Intermediate as Interm
from tests.klinen.toy import MLP, AutoEncoder, Dense, X, assert_close, assert_same

if TYPE_CHECKING:
    from nowhere import Unknown


class Tiny(knn.Module):
    """Stores one value; has one more that is never set, and a default."""

    v: knn.Intermediate[Unknown] = dataclasses.field(init=False)
    unset: Interm[int] = dataclasses.field(init=False)
    default: knn.Intermediate[int] = dataclasses.field(init=False, default=7)
    other: Unknown = None

    @nn.compact
    def __call__(self, x):
        self.v = x
        return x * 2


class Log(knn.Module):
    """Accumulates in a list, overwrites a value, makes and sows things."""

    childs: Any
    values: Interm[list] = dataclasses.field(init=False, default_factory=list)
    last: Interm[Any] = dataclasses.field(init=False)
    table: Interm[dict] = dataclasses.field(init=False, default_factory=dict)

    @nn.compact
    def __call__(self, x):
        x = Tiny()(x)
        for child in self.childs:
            x = child(x)
            self.values.append(x)
            self.table = {f"n{len(self.values)}": x}
        self.last = self.values[-1]
        self.sow("intermediates", "sown", x)
        return Dense(8)(x)


def _log():
    return Log([Dense(8), Dense(8)])


@pytest.fixture(scope="module")
def model():
    return AutoEncoder(encoder=_log(), decoder=Tiny()).init_bind(0, X)


@pytest.fixture(scope="module")
def captured(model):
    return model.call_with_intermediate(X)[1]


# ----------------------------------------------------------------------------------
# Declaring
# ----------------------------------------------------------------------------------


def test_fields_must_not_be_arguments_of_the_constructor():
    with pytest.raises(ValueError, match=r"Bad\.x`.*field\(init=False\)"):

        class Bad(knn.Module):
            x: knn.Intermediate[int] = 4

    with pytest.raises(ValueError, match=r"Bad2\.x`"):

        class Bad2(knn.Module):
            x: knn.Intermediate[int]

    with pytest.raises(ValueError, match=r"Bad3\.x`"):

        class Bad3(knn.Module):
            x: knn.Intermediate[Unknown] = dataclasses.field(default=3)


def test_names_that_exist_for_type_checkers_only():
    namespace = {
        "__annotations__": {"x": "nowhere.Intermediate[int]"},
        "x": dataclasses.field(init=False, default=1),
    }
    cls = type("Made", (knn.Module,), namespace)
    with pytest.raises(AttributeError, match="only be accessed inside"):
        cls().x


def test_they_take_no_part_in_constructor_equality_hash_and_repr():
    assert Tiny() == Tiny() and hash(Tiny()) == hash(Tiny())
    assert "default" not in repr(Tiny())
    with pytest.raises(TypeError):
        Tiny(v=3)
    assert Tiny(other=3).other == 3


def test_subclasses_inherit_them():
    class Sub(Tiny):
        more: knn.Intermediate[int] = dataclasses.field(init=False, default=1)

        @nn.compact
        def __call__(self, x):
            return super().__call__(x) + self.more + self.default

    y, stored = Sub().init_bind(0, X).call_with_intermediate(X)
    assert_close(y, 2 * X + 8)
    assert_same(stored.v, X)


# ----------------------------------------------------------------------------------
# During calls
# ----------------------------------------------------------------------------------


def test_reading_what_was_not_set_is_an_error():
    class Reads(Tiny):
        def __call__(self, x):
            return self.unset

    with pytest.raises(
        AttributeError, match=r"Tiny\.unset` was not set during the call"
    ):
        Reads().init_bind(0, X)


def test_plain_flax_keeps_no_values_and_yet_works():
    raw = _log()
    variables = raw.init(jax.random.PRNGKey(0), X)
    assert set(variables) == {"params"}
    y = raw.apply(variables, X)
    y2, state = raw.apply(variables, X, mutable=["intermediates"])
    assert_same(y, y2)
    stored = state["intermediates"]
    assert len(stored["values"]) == 2
    assert set(stored["table"]) == {"n2"}
    assert_same(stored["Tiny_0"]["v"], X)
    assert_same(stored["last"], stored["values"][1])


@pytest.mark.parametrize("how", ["plain", "captured"])
def test_values_persist_between_invocations_of_a_shared_module(how):
    lengths = []

    class Twice(knn.Module):
        log: nn.Module

        def __call__(self, x):
            x = self.log(self.log(x))
            lengths.append(len(self.log.values))
            return x

    model = Twice(_log()).init_bind(0, X)
    lengths.clear()
    for _ in range(2):
        if how == "plain":
            model(X)
        else:
            _, stored = model.call_with_intermediate(X)
            assert len(stored.log.values) == 4
            assert set(stored.log.table) == {"n4"}
    assert lengths == [4, 4]


def test_outside_of_calls_they_can_be_neither_read_nor_set(model):
    for module in (model.encoder, model.encoder.eval(), _log()):
        with pytest.raises(AttributeError, match=r"only be accessed.*capture_intermed"):
            module.values
        with pytest.raises(
            AttributeError, match=r"only be set inside module functions"
        ):
            module.values = []


def test_sowing_under_the_name_of_a_field_is_an_error():
    class Sows(Tiny):
        @nn.compact
        def __call__(self, x):
            self.sow("intermediates", "v", x)

    with pytest.raises(ValueError, match=r"Sows\.v"):
        Sows().init_bind(0, X)


# ----------------------------------------------------------------------------------
# What comes out
# ----------------------------------------------------------------------------------


def test_values_are_found_by_attribute(model, captured):
    assert len(captured.encoder.values) == 2
    assert_same(captured.encoder.last, captured.encoder.values[1])
    assert_same(captured.decoder.v, model.encoder(X))
    assert captured.decoder.default == 7
    assert isinstance(captured, knn.Intermediates)


def test_defaults_of_modules_that_were_not_called():
    class Lazy(knn.Module):
        used: nn.Module
        unused: nn.Module

        def __call__(self, x):
            return self.used(x)

    _, stored = Lazy(Tiny(), _log()).init_bind(0, X).call_with_intermediate(X)
    assert stored.unused.values == []
    assert len(stored.unused.childs) == 2
    with pytest.raises(AttributeError, match="was not set during the call"):
        stored.unused.last
    with pytest.raises(AttributeError, match="was not set during the call"):
        stored.used.unset


def test_containers_keep_their_types(captured):
    assert type(captured.encoder.childs) is list
    assert isinstance(captured.encoder.childs[1], knn.Intermediates)
    nest = knn.Sequential((Tiny(), _log())).init_bind(0, X)
    _, stored = nest.call_with_intermediate(X)
    assert type(stored.layers) is tuple
    assert_same(stored.layers[0].v, X)
    mixed = knn.Sequential([Tiny(), nn.relu, Tiny()]).init_bind(0, X)
    _, stored = mixed.call_with_intermediate(X)
    assert stored.layers[1] is None
    assert_same(stored.layers[2].v, nn.relu(2 * X))


def test_setup_modules_are_there_too():
    class Made(knn.Module):
        def setup(self):
            self.one = Tiny()
            self.many = [Tiny(), _log()]

        def __call__(self, x):
            return self.many[1](self.many[0](self.one(x)))

    model = Made().init_bind(0, X)
    with model.capture_intermediates() as by_parts:
        model.many[1](model.many[0](model.one(X)))
    for stored in (model.call_with_intermediate(X)[1], by_parts):
        assert_same(stored.many[0].v, 2 * X)
        assert len(stored.many[1].values) == 2


def test_sown_values_and_inner_modules_are_found_by_item(captured):
    assert_same(captured.encoder["sown"], (captured.encoder.last,))
    assert_same(captured.encoder["Tiny_0"].v, X)
    assert captured.encoder["Tiny_0"].default == 7
    assert isinstance(captured.encoder["Dense_0"], knn.Intermediates)
    assert "sown" in captured.encoder and "x" not in captured.encoder
    with pytest.raises(KeyError, match=r"^'nothing': .*Tiny_0.*sown.* here\.$"):
        captured.encoder["nothing"]  # a sentence, not the repr of one


def test_other_attributes_are_explained(captured):
    with pytest.raises(
        AttributeError, match=r"Only sub-modules and intermediate.*childs"
    ):
        captured.encoder.features
    assert {"childs", "values", "last"} <= set(dir(captured.encoder))
    text = repr(captured.encoder)
    assert "Log" in text and "values" in text and "['sown']" in text


def test_they_are_immutable(captured):
    with pytest.raises(AttributeError, match="cannot be changed"):
        captured.encoder.last = 3
    with pytest.raises(AttributeError, match="cannot be changed"):
        del captured.encoder


def test_they_go_through_jit_and_tree_map(model, captured):
    from_jit = jax.jit(lambda m, x: m.call_with_intermediate(x)[1])(model, X)
    assert_close(from_jit.encoder.values, captured.encoder.values)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, captured)
    assert_same(doubled.encoder["Tiny_0"].v, 2 * X)
    part = jax.tree.map(lambda leaf: 2 * leaf, captured.decoder)
    assert_same(part.v, 2 * captured.decoder.v)
    assert len(jax.tree.leaves(captured.decoder)) == 1
    again = model.call_with_intermediate(X)[1]
    assert jax.tree.structure(again) == jax.tree.structure(captured)


def test_they_can_be_copied_and_pickled(captured):
    for copied in (
        copy.copy(captured),
        copy.deepcopy(captured),
        pickle.loads(pickle.dumps(captured)),
    ):
        assert_same(copied.encoder.values, captured.encoder.values)
        assert copied.decoder.default == 7


def test_shared_modules_are_one_object():
    part = Tiny()
    model = AutoEncoder(encoder=part, decoder=part).init_bind(0, X)
    _, stored = model.call_with_intermediate(X)
    assert stored.encoder is stored.decoder
    assert_same(stored.decoder.v, 2 * X)
    pair = AutoEncoder(encoder=part, decoder=knn.Sequential([part])).init_bind(0, X)
    decoder = pair.call_with_intermediate(X)[1].decoder
    assert_same(jax.tree.map(lambda leaf: leaf, decoder).layers[0].v, 2 * X)


def test_handles_and_methods(model):
    y, stored = model.encoder.call_with_intermediate(X)
    assert_same(y, model.encoder(X))
    assert len(stored.values) == 2
    assert_same(stored["Tiny_0"].v, X)

    class Net(knn.Module):
        part: nn.Module

        def __call__(self, x):
            return self.part(x)

        def twice(self, x, scale):
            return self.part(scale * x)

    _, stored = (
        Net(Tiny()).init_bind(0, X).call_with_intermediates(X, scale=3, method="twice")
    )
    assert_same(stored.part.v, 3 * X)


# ----------------------------------------------------------------------------------
# Blocks
# ----------------------------------------------------------------------------------


def test_inside_of_the_block_nothing_is_available(model):
    with model.capture_intermediates() as stored:
        with pytest.raises(AttributeError, match=r"cannot access.*from within"):
            stored.encoder
        with pytest.raises(KeyError, match="from within"):
            stored["encoder"]
        assert "after the `with` block" in repr(stored)
        assert isinstance(dir(stored), list)
        model(X)
    assert len(stored.encoder.values) == 2


def test_calls_of_other_models_are_not_recorded(model):
    with model.capture_intermediates() as stored:
        model.eval()(X + 1)
        model.with_rng(0)(X + 1)
        model.init_bind(1, X)(X + 1)
        model(X)
    assert_same(stored.encoder["Tiny_0"].v, X)
    with (
        pytest.raises(
            RuntimeError, match="Nothing was captured: this very AutoEncoder"
        ),
        model.capture_intermediates(),
    ):
        model.eval()(X)


def test_each_part_is_called_once(model):
    for again in (model, model.encoder):
        with (
            pytest.raises(RuntimeError, match="called twice"),
            model.capture_intermediates(),
        ):
            model(X)
            again(X)
    with model.capture_intermediates() as stored:
        model.decoder(model.encoder(X))
    _, expected = model.call_with_intermediate(X)
    assert_same(stored.encoder.values, expected.encoder.values)
    assert_same(stored.decoder.v, expected.decoder.v)


def test_blocks_on_handles(model):
    with model.encoder.capture_intermediates() as stored:
        model.decoder(model.encoder(X))
    assert len(stored.values) == 2
    with (
        pytest.raises(RuntimeError, match="Nothing was captured"),
        model.encoder.capture_intermediates(),
    ):
        model.decoder(X)


def test_blocks_do_not_nest_on_one_model_but_on_different_ones(model):
    other = model.eval()
    with model.capture_intermediates() as a, other.capture_intermediates() as b:
        model(X)
        other(2 * X)
    assert_same(2 * a.encoder["Tiny_0"].v, b.encoder["Tiny_0"].v)
    with (
        pytest.raises(RuntimeError, match="cannot be nested"),
        model.capture_intermediates(),
        model.capture_intermediates(),
    ):
        pass


def test_exceptions_pass_through_and_leave_nothing_behind(model):
    with (
        pytest.raises(ZeroDivisionError),
        model.capture_intermediates(),
    ):
        raise ZeroDivisionError
    with model.capture_intermediates() as stored:
        model(X)
    assert len(stored.encoder.values) == 2
    assert model(X).shape == X.shape


def test_a_block_works_inside_of_jit(model):
    @jax.jit
    def f(model, x):
        with model.capture_intermediates() as stored:
            y = model(x)
        return y, stored.encoder.values

    _, values = f(model, X)
    assert_close(values, model.call_with_intermediate(X)[1].encoder.values)


def test_threads_and_tasks_do_not_see_each_others_blocks(model):
    entered, leave = threading.Event(), threading.Event()
    failures = []

    def hold():
        try:
            with (
                pytest.raises(RuntimeError, match="Nothing was captured"),
                model.capture_intermediates(),
            ):
                entered.set()
                assert leave.wait(60)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(60)
    with model.capture_intermediates() as stored:
        model(X)
    leave.set()
    thread.join(60)
    assert not failures and not thread.is_alive()
    assert len(stored.encoder.values) == 2

    async def record(scale):
        with model.capture_intermediates() as stored:
            await asyncio.sleep(0)
            model(scale * X)
            await asyncio.sleep(0)
        return stored.encoder["Tiny_0"].v

    async def both():
        return await asyncio.gather(record(1), record(2))

    one, two = asyncio.run(both())
    assert_same(2 * one, two)


def test_a_model_with_no_intermediates_can_be_captured():
    model = MLP(rate=0.0).init_bind(0, X).eval()
    y, stored = model.call_with_intermediate(X)
    assert_same(y, model(X))
    assert jax.tree.leaves(stored) == []
    assert jnp.isfinite(y).all()
