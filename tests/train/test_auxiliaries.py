"""States of losses, metrics and summaries: merged, computed, named, saved."""

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

from kauldron import kd, kontext
from kauldron.train import Auxiliaries, AuxiliariesOutput, AuxiliariesState, Context


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Mean(kd.metrics.Metric):
    """The mean, in whatever form it is told to; fails where it is told to."""

    x: kontext.Key = kontext.REQUIRED
    form: str = "number"
    fails_in: str = ""

    @flax.struct.dataclass
    class State(kd.metrics.AutoState):
        total: Any = kd.metrics.sum_field()
        count: Any = kd.metrics.sum_field()

        def merge(self, other):
            self.parent._maybe_fail("merge")
            return super().merge(other)

        def compute(self):
            self.parent._maybe_fail("compute")
            value = self.total / self.count
            forms = {
                "number": value,
                "dict": {"top1": value, "deep": {"top5": value + 1}},
                "list": [value, value + 1],
                "vector": np.full(3, value),
            }
            return forms[self.parent.form]

    def get_state(self, x):
        self._maybe_fail("get_state")
        return self.State(total=x.sum(), count=x.size)

    def _maybe_fail(self, where):
        if self.fails_in == where:
            raise ZeroDivisionError("on purpose")


def _context(*values):
    return Context(step=0, batch={"x": jnp.asarray(values, jnp.float32)})


def _aux(context=None, **metrics):
    auxiliaries = Auxiliaries(losses={}, metrics=metrics, summaries={})
    context = auxiliaries.update_context(context or _context(1.0, 3.0))
    return context.get_aux_state(return_metrics=True)


#
# The objects
#


def test_mappings_are_frozen_and_the_whole_has_a_hash():
    metric = Mean(x="batch.x")
    a = Auxiliaries(losses={}, metrics={"m": {"n": metric}}, summaries={})
    b = Auxiliaries(losses={}, metrics={"m": {"n": metric}}, summaries={})
    assert a == b and hash(a) == hash(b)
    with pytest.raises(TypeError):
        a.metrics["other"] = metric


def test_states_keep_the_nesting():
    states = _aux(a=Mean(x="batch.x"), group={"b": Mean(x="batch.x")}).metric_states
    assert float(states["a"].total) == 4.0
    assert float(states["group"]["b"].count) == 2


def test_losses_of_the_forward_pass_are_kept():
    loss = kd.losses.Value(values="batch.x")
    auxiliaries = Auxiliaries(losses={"v": loss}, metrics={}, summaries={})
    computed = auxiliaries.update_context(_context(1.0, 3.0))
    assert float(computed.loss_states["v"].compute()) == 2.0
    given = _context(1.0).replace(loss_states={"v": "already there"})
    assert auxiliaries.update_context(given).loss_states == {"v": "already there"}


#
# Merging
#


def test_merging_adds_up_state_by_state():
    a = _aux(_context(1.0), m=Mean(x="batch.x"), g={"n": Mean(x="batch.x")})
    b = _aux(_context(2.0, 6.0), m=Mean(x="batch.x"), g={"n": Mean(x="batch.x")})
    for merged in (a | b, a.merge(b)):
        assert merged.compute().metric_values == {"metrics/m": 3.0, "metrics/g/n": 3.0}


def test_none_and_empty_sides_yield_the_other():
    a = _aux(m=Mean(x="batch.x"))
    empty = AuxiliariesState()
    none = AuxiliariesState(loss_states=None, metric_states=None, summary_states=None)
    for merged in (a | None, None | a, a | empty, empty | a, a | none, none | a):
        assert merged.compute().metric_values == {"metrics/m": 2.0}
    assert (none | none).metric_states is None


def test_merging_keeps_the_error_that_says_something():
    @checkify.checkify
    def check(x):
        checkify.check(x > 0, "not positive")

    fine, _ = check(1.0)
    bad, _ = check(-1.0)
    state = AuxiliariesState()
    for mine, other in ((None, bad), (bad, None), (fine, bad), (bad, fine)):
        merged = state.replace(error=mine) | state.replace(error=other)
        with pytest.raises(checkify.JaxRuntimeError, match="not positive"):
            merged.error.throw()
    assert (state.replace(error=fine) | state.replace(error=None)).error.get() is None


#
# Values
#


def test_result_without_states_computes_to_nothing():
    none = AuxiliariesState(loss_states=None, metric_states=None, summary_states=None)
    assert none.compute() == AuxiliariesState().compute() == AuxiliariesOutput()


def test_nested_metrics_and_results_are_named_by_path():
    aux = _aux(
        number=Mean(x="batch.x"),
        acc=Mean(x="batch.x", form="dict"),
        group={"list": Mean(x="batch.x", form="list")},
    )
    assert aux.compute().metric_values == {
        "metrics/number": 2.0,
        "metrics/acc/top1": 2.0,
        "metrics/acc/deep/top5": 3.0,
        "metrics/group/list/0": 2.0,
        "metrics/group/list/1": 3.0,
    }
    nested = aux.compute(flatten=False).metric_values
    assert nested["acc"]["deep"] == {"top5": 3.0}
    assert nested["group"]["list"] == [2.0, 3.0]


def test_losses_get_a_total():
    auxiliaries = Auxiliaries(
        losses={
            "a": kd.losses.Value(values="batch.x"),
            "g": {"b": kd.losses.Value(values="batch.x", weight=2.0)},
        },
        metrics={},
        summaries={},
    )
    context = auxiliaries.update_context(_context(1.0, 3.0))
    values = context.get_aux_state(return_losses=True).compute()
    assert values.loss_values == {
        "losses/a": 2.0,
        "losses/g/b": 4.0,
        "losses/total": 6.0,
    }
    assert values.metric_values == {}


def test_values_are_numpy():
    values = _aux(v=Mean(x="batch.x", form="vector"), n=Mean(x="batch.x")).compute()
    for value in values.metric_values.values():
        assert isinstance(value, np.ndarray | np.generic)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("get_state", "In metrics/group/mine: "),
        ("merge", "In metrics/group/mine: "),
        ("compute", "compute() failed for metrics/group/mine: "),
    ],
)
def test_failing_metric_keeps_its_type_and_is_named(where, words):
    metric = Mean(x="batch.x", fails_in=where)
    with pytest.raises(ZeroDivisionError) as error:
        aux = _aux(group={"mine": metric})
        (aux | aux).compute()
    assert str(error.value).startswith(words)
    assert str(error.value).endswith("on purpose")


def test_states_pass_through_jit():
    aux = _aux(m=Mean(x="batch.x"))
    doubled = jax.jit(lambda a: a | a)(aux)
    assert float(doubled.metric_states["m"].count) == 4


def test_states_are_saved_and_restored_without_the_error(tmp_path):
    @checkify.checkify
    def check(x):
        checkify.check(x > 0, "not positive")

    aux = _aux(m=Mean(x="batch.x")).replace(error=check(1.0)[0])
    checkpointer = kd.ckpts.Checkpointer(save_interval_steps=1, workdir=tmp_path)
    checkpointer.save(aux, step=1)
    checkpointer.close()
    empty = jax.tree.map(jnp.zeros_like, aux.replace(error=None))
    restored = checkpointer.restore(empty)
    assert restored.compute().metric_values == {"metrics/m": 2.0}
