"""One evaluation: what is measured, on which data, of which state."""

import dataclasses
import gc
import warnings
import weakref

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import checkify

from kauldron import kd, kontext
from tests.evals.experiments import points, steps
from tests.train.toy import Linear, make_arrays, make_ds, make_trainer

ALL = {"shuffle": False, "num_epochs": 1}


def make(tmp_path, *, cls=kd.evals.Evaluator, trainer=None, **kwargs):
    """A trainer with one evaluator called `e`, and a state."""
    kwargs = {"run": kd.evals.Once(0), **kwargs}
    trainer = make_trainer(
        tmp_path,
        **{"eval_ds": make_ds(**ALL), "evals": {"e": cls(**kwargs)}, **(trainer or {})},
    )
    return trainer.evals["e"], trainer.init_state()


def values(aux):
    output = aux.compute()
    return {**output.loss_values, **output.metric_values}


#
# In training
#


def test_losses_are_written_at_every_nth_step_and_no_metrics_if_empty(tmp_path):
    evals = {
        "eval": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(5), num_batches=None, ds=make_ds(**ALL), metrics={}
        ),
        "k": kd.evals.Evaluator(run=kd.evals.Once(7), ds=make_ds(**ALL)),
    }
    make_trainer(tmp_path, num_train_steps=10, evals=evals, checkpointer=None).train()
    assert steps(tmp_path, "eval") == [0, 5, 10]
    assert steps(tmp_path, "eval", "metrics/norm") == []
    assert steps(tmp_path, "k") == [7]


def test_unset_parts_are_the_trainers_and_follow_it(tmp_path):
    inheriting = kd.evals.Evaluator(run=kd.evals.Once(0))
    own = kd.evals.Evaluator(run=kd.evals.Once(0), losses={}, metrics={}, summaries={})
    evals = {"inheriting": inheriting, "own": own}
    trainer = make_trainer(tmp_path, eval_ds=make_ds(), evals=evals)
    assert trainer.evals["inheriting"].losses is trainer.train_losses
    assert not trainer.evals["own"].losses and not trainer.evals["own"].metrics
    other = {"other": kd.metrics.Norm(tensor="preds.y")}
    replaced = trainer.replace(train_metrics=other)
    assert replaced.evals["inheriting"].metrics == other
    assert replaced.evals["own"].metrics == {}


def test_failing_evaluator_raises_its_own_error_with_name_and_step(tmp_path):
    class Failing(kd.evals.Evaluator):
        def _step(self, step_nr, state, batch):
            raise LookupError("no such thing")

    evaluator, state = make(tmp_path, cls=Failing, run=kd.evals.EveryNSteps(3))
    with pytest.raises(LookupError, match="Evaluator e failed at step 6: no such"):
        evaluator.maybe_eval(step=6, state=state)
    assert evaluator.maybe_eval(step=7, state=state) is None


class ModeProbe(nn.Module):
    """Tells in which mode it runs."""

    x: kontext.Key = "batch.x"
    is_training = kd.nn.train_property()

    @nn.compact
    def __call__(self, x):
        mode = jnp.full(x.shape[:1], float(self.is_training))
        return {"y": nn.Dense(2, name="dense")(x), "mode": mode[:, None]}


def test_model_is_in_eval_mode_in_evaluators_and_in_training_mode_in_the_loop(tmp_path):
    mode = {"mode": kd.metrics.Norm(tensor="preds.mode")}
    make_trainer(
        tmp_path,
        model=ModeProbe(),
        train_metrics=mode,
        num_train_steps=1,
        log_metrics_every=1,
        eval_ds=make_ds(**ALL),
        evals={"e": kd.evals.Evaluator(run=kd.evals.EveryNSteps(1))},
        checkpointer=None,
    ).train()
    assert points(tmp_path, "train", "metrics/mode") == [(0, 1.0)]
    assert points(tmp_path, "e", "metrics/mode") == [(0, 0.0), (1, 0.0)]


#
# The same again
#


def test_two_evaluations_agree_and_leave_the_state_usable(tmp_path):
    evaluator, state = make(tmp_path)
    first, second = (values(evaluator.evaluate(state, 0)) for _ in range(2))
    assert first == second
    assert all(not leaf.is_deleted() for leaf in jax.tree.leaves(state))


def test_shuffled_data_starts_from_its_first_batch_each_time(tmp_path):
    evaluator, state = make(tmp_path, ds=make_ds(shuffle=True), num_batches=1)
    assert values(evaluator.evaluate(state, 0)) == values(evaluator.evaluate(state, 1))


class Noisy(nn.Module):
    """Adds noise of an rng stream that also exists in evaluation."""

    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        noise = jax.random.normal(self.make_rng("noise"), x.shape)
        return {"y": nn.Dense(2, name="dense")(x), "noise": noise}


def test_random_numbers_depend_on_the_batch_index_only(tmp_path):
    streams = kd.train.RngStreams([kd.train.RngStream("noise", eval=True)])
    evaluator, state = make(
        tmp_path,
        trainer={"model": Noisy(), "rng_streams": streams},
        metrics={"noise": kd.metrics.Norm(tensor="preds.noise")},
    )
    later = state.replace(step=state.step + 7)
    assert values(evaluator.evaluate(state, 0)) == values(evaluator.evaluate(later, 7))
    batch = evaluator.ds.first()
    by_index = [
        values(evaluator.step(step_nr=i, state=state, batch=batch))["metrics/noise"]
        for i in (0, 0, 1)
    ]
    assert by_index[0] == by_index[1] != by_index[2]


#
# Data
#


@pytest.mark.parametrize("num_batches", [0, -3])
def test_number_of_batches_below_one_is_refused(tmp_path, num_batches):
    with pytest.raises(ValueError, match=r"cfg\.evals\.\w+\.num_batches.*at least 1"):
        make(tmp_path, num_batches=num_batches)


@pytest.mark.parametrize("num_batches, used", [(1, 16), (3, 48), (99, 64), (None, 64)])
def test_number_of_batches(tmp_path, num_batches, used):
    evaluator, state = make(tmp_path, num_batches=num_batches)
    expected = _mean_squared_error(state, used)
    assert values(evaluator.evaluate(state, 0))["losses/l2"] == pytest.approx(
        expected, rel=1e-5
    )


def _mean_squared_error(state, used):
    arrays = make_arrays()
    dense = jax.device_get(state.params["dense"])
    preds = arrays["x"][:used] @ dense["kernel"] + dense["bias"]
    return float(np.mean((preds - arrays["y"][:used]) ** 2))


@pytest.mark.parametrize("batch_size", [7, 48])
def test_batches_of_unequal_size_merge_to_the_mean_over_all_records(
    tmp_path, batch_size, caplog
):
    ds = make_ds(**ALL, batch_size=batch_size, batch_drop_remainder=False)
    evaluator, state = make(tmp_path, ds=ds)
    with caplog.at_level("INFO", logger="kauldron"):
        for step in range(2):
            result = values(evaluator.evaluate(state, step))
    expected = _mean_squared_error(state, 64)
    assert result["losses/l2"] == pytest.approx(expected, rel=1e-5)
    told = [r for r in caplog.records if "compiled once more" in r.message]
    assert len(told) == 1


class NoBatches(kd.data.Pipeline):
    """Data that turns out to be empty."""

    def __iter__(self):
        return iter(())


def test_no_batch_at_all_is_an_error_with_name_and_data(tmp_path):
    evaluator, state = make(tmp_path, ds=NoBatches())
    with pytest.raises(
        ValueError, match=r"no batch to evaluate in the data of 'e': .*NoBatches"
    ):
        evaluator.evaluate(state, 0)


def test_endless_data_without_a_number_of_batches_is_an_error(tmp_path):
    evaluator, state = make(tmp_path, ds=make_ds(num_epochs=None))
    with pytest.raises(
        ValueError, match=r"forever.*cfg\.evals\.e\.num_batches.*num_epo"
    ):
        evaluator.evaluate(state, 0)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CountingData(kd.data.Pipeline):
    """Counts how often it is read; its length is not known."""

    reads: list

    def __iter__(self):
        self.reads.append(1)
        arrays = make_arrays()
        for start in range(0, 64, 16):
            yield {name: array[start : start + 16] for name, array in arrays.items()}


def test_cache_reads_the_data_once(tmp_path):
    for cache, expected in ((False, 3), (True, 1)):
        reads = []
        ds = CountingData(reads=reads)
        evaluator, state = make(tmp_path, ds=ds, num_batches=4, cache=cache)
        results = [values(evaluator.evaluate(state, step)) for step in range(3)]
        assert results[0] == results[1] == results[2]
        assert len(reads) == expected


def test_cache_needs_a_known_length(tmp_path):
    evaluator, state = make(tmp_path, ds=CountingData(reads=[]), cache=True)
    with pytest.raises(ValueError, match=r"cache=True.*num_batches"):
        evaluator.evaluate(state, 0)


#
# State
#


def test_averaged_weights_are_evaluated_with_and_without_optimizer(tmp_path):
    transforms = {"ema": kd.optim.UseEmaParams(), "plain": kd.ckpts.NoopTransform()}
    evals = {
        f"{name}{'_discarding' if discard_opt else ''}": kd.evals.Evaluator(
            run=kd.evals.Once(5), init_transform=transform, discard_opt=discard_opt
        )
        for name, transform in transforms.items()
        for discard_opt in (False, True)
    }
    trainer = make_trainer(
        tmp_path,
        optimizer=optax.chain(optax.adam(0.1), kd.optim.ema_params(decay=0.9)),
        num_train_steps=5,
        eval_ds=make_ds(**ALL),
        evals=evals,
        checkpointer=None,
    )
    state, _ = trainer.train()
    for suffix in ("", "_discarding"):
        for name, transform in transforms.items():
            value = points(tmp_path, f"{name}{suffix}")[0][1]
            expected = _mean_squared_error(transform.transform(state), 64)
            assert value == pytest.approx(expected, rel=1e-4)
        averaged, plain = (points(tmp_path, f"{name}{suffix}") for name in transforms)
        assert averaged != plain


def test_optimizer_state_is_not_there_if_discarded(tmp_path):
    seen = []

    class Probe(kd.evals.Evaluator):
        def _step(self, step_nr, state, batch):
            seen.append(state.opt_state)
            return super()._step(step_nr, state, batch)

    evaluator, state = make(tmp_path, cls=Probe, discard_opt=True)
    evaluator.evaluate(state, 0)
    assert seen == [None] and state.opt_state is not None


def test_collections_that_the_forward_pass_changes_are_discarded(tmp_path):
    class Counting(nn.Module):
        x: kontext.Key = "batch.x"

        @nn.compact
        def __call__(self, x):
            count = self.variable("counts", "n", lambda: jnp.zeros(()))
            count.value += 1
            return {"y": nn.Dense(2, name="dense")(x), "n": count.value[None, None]}

    evaluator, state = make(
        tmp_path,
        trainer={"model": Counting()},
        metrics={"n": kd.metrics.Norm(tensor="preds.n")},
    )
    before = float(state.collections["counts"]["n"])
    assert values(evaluator.evaluate(state, 0))["metrics/n"] == before + 1
    assert float(state.collections["counts"]["n"]) == before


#
# What is measured
#


def test_overriding_step_changes_what_is_measured_and_nothing_else(tmp_path):
    class Doubled(kd.evals.Evaluator):
        def _step(self, step_nr, state, batch):
            batch = {**batch, "y": 2 * batch["y"]}
            return super()._step(step_nr, state, batch)

    doubled, state = make(tmp_path, cls=Doubled)
    plain, _ = make(tmp_path)
    a, b = values(doubled.evaluate(state, 0)), values(plain.evaluate(state, 0))
    assert a["losses/l2"] != b["losses/l2"] and a["metrics/norm"] == b["metrics/norm"]
    assert steps(tmp_path, "e") == [0, 0]


def test_inherited_metric_on_gradients_is_left_out_with_a_message(tmp_path, caplog):
    metrics = {
        "grads": kd.metrics.Norm(tensor="grads.dense.kernel"),
        "nested": {"updates": kd.metrics.Norm(tensor="updates['dense'].bias")},
        "kept": kd.metrics.Norm(tensor="params.dense.kernel"),
    }
    evaluator, state = make(tmp_path, trainer={"train_metrics": metrics})
    with caplog.at_level("INFO", logger="kauldron"):
        assert list(evaluator.evaluate(state, 0).compute().metric_values) == [
            "metrics/kept"
        ]
    assert "leaves out the metrics grads, nested/updates of training" in caplog.text


def test_inherited_metric_on_the_optimizer_goes_with_the_optimizer(tmp_path):
    metrics = {"count": kd.metrics.Norm(tensor="opt_state[0].mu.dense.kernel")}
    for discard_opt, expected in ((False, ["metrics/count"]), (True, [])):
        evaluator, state = make(
            tmp_path, trainer={"train_metrics": metrics}, discard_opt=discard_opt
        )
        output = evaluator.evaluate(state, 0).compute()
        assert list(output.metric_values) == expected


@pytest.mark.parametrize(
    "key, hint",
    [
        ("grads.dense.kernel", "metrics/bad.*available only in train steps"),
        ("params.dense.kernl", "Did you mean: 'params.dense.kernel'"),
    ],
)
def test_explicit_metric_with_a_wrong_key_is_a_key_error_with_advice(
    tmp_path, key, hint
):
    evaluator, state = make(tmp_path, metrics={"bad": kd.metrics.Norm(tensor=key)})
    with pytest.raises(KeyError, match=f"(?s){hint}"):
        evaluator.evaluate(state, 0)


class TwoMethods(Linear):
    """Can also give back what it was given."""

    def inputs(self, x):
        return {"y": x[:, :2]}


def test_model_method_evaluates_another_method(tmp_path):
    evaluator, state = make(
        tmp_path, trainer={"model": TwoMethods(x="batch.x")}, model_method="inputs"
    )
    arrays = make_arrays()
    expected = np.mean((arrays["x"][:, :2] - arrays["y"]) ** 2)
    assert values(evaluator.evaluate(state, 0))["losses/l2"] == pytest.approx(expected)


def test_checks_name_the_batch_that_failed(tmp_path):
    from jax.experimental import checkify

    class Nan(kd.evals.Evaluator):
        def _step(self, step_nr, state, batch):
            x = jnp.where(
                step_nr == 2, jnp.log(-jnp.ones(()) - batch["x"][0, 0] * 0), 0
            )
            batch = {**batch, "x": batch["x"] + x}
            return super()._step(step_nr, state, batch)

    evaluator, state = make(
        tmp_path, cls=Nan, checkify_error_categories=checkify.nan_checks
    )
    with pytest.raises(checkify.JaxRuntimeError, match="Batch 0: nan"):
        evaluator.evaluate(state, 0)


def test_values_are_computed_once_for_the_writer_and_for_the_best_checkpoint(tmp_path):
    computed = []

    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class Counted(kd.metrics.Norm):
        def get_state(self, tensor, mask=None):
            return _CountedState.from_values(jnp.abs(tensor))

    @flax.struct.dataclass
    class _CountedState(kd.metrics.AverageState):
        def compute(self):
            computed.append(1)
            return super().compute()

    evaluator, state = make(tmp_path, metrics={"c": Counted(tensor="preds.y")})
    aux = evaluator.evaluate(state, 0)
    nested = aux.compute(flatten=False).metric_values
    assert nested["c"] == points(tmp_path, "e", "metrics/c")[0][1]
    assert len(computed) == 1


#
# Older names
#


def test_basic_eval_step_measures_the_same_and_warns(tmp_path):
    evaluator, state = make(tmp_path)
    batch = evaluator.ds.first()
    with pytest.warns(DeprecationWarning, match="_step"):
        old = kd.evals.basic_eval_step(
            model_with_aux=evaluator.model_with_aux,
            rng_streams=evaluator.base_cfg.rng_streams,
            step_nr=0,
            state=state,
            batch=batch,
            sharding=evaluator.base_cfg.sharding,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = evaluator.step(step_nr=0, state=state, batch=batch)
    assert values(old) == values(new)


def test_collection_keys_can_be_imported():
    assert kd.evals.CollectionKeys(metrics=("a",)).metrics == ("a",)


#
# Memory
#


@pytest.mark.parametrize("one_by_one", [False, True], ids=["grouped", "one by one"])
def test_evaluator_and_its_data_go_when_nobody_needs_them(tmp_path, one_by_one):
    checks = checkify.float_checks if one_by_one else frozenset()
    evaluator, state = make(tmp_path, checkify_error_categories=checks)
    for step in range(2):
        evaluator.evaluate(state, step)
    evaluator.step(step_nr=0, state=state, batch=evaluator.ds.first())
    alive = [weakref.ref(evaluator), weakref.ref(evaluator.ds)]
    del evaluator
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
