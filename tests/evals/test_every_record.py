"""Every record is measured once; also run by `test_on_eight_devices.py`."""

import dataclasses
import functools

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from kauldron import kd, kontext
from kauldron.data.py import DropRemainder

NUM_RECORDS, BATCH_SIZE = 57, 16
RNG = np.random.default_rng(0)
DATA = {
    "x": RNG.normal(size=(NUM_RECORDS, 4)).astype(np.float32),
    "label": RNG.integers(0, 3, size=(NUM_RECORDS, 1)).astype(np.int32),
}
ON_ONE_DEVICE = jax.device_count() == 1


class Classifier(nn.Module):
    """Sees that it gets nothing but its input."""

    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        logits = nn.Dense(3, name="dense")(x + 0.1)
        return {"logits": logits, "mean": logits.mean()}


class WholeBatch(nn.Module):
    """Without keys, it gets the whole batch."""

    @nn.compact
    def __call__(self, batch):
        assert sorted(batch) == ["label", "x"]
        return {"logits": nn.Dense(3, name="dense")(batch["x"] + 0.1)}


def arrays(**changes):
    kwargs = {"shuffle": False, "num_epochs": 1, "batch_size": BATCH_SIZE, **changes}
    return kd.data.py.Arrays(DATA, **kwargs)


def in_memory(**changes):
    kwargs = {"num_epochs": 1, "batch_size": BATCH_SIZE, **changes}
    return kd.data.InMemoryPipeline(loader=lambda: DATA, **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Generated(kd.data.Pipeline):
    """A user's own pipeline, whose last batch is smaller."""

    def __iter__(self):
        for start in range(0, NUM_RECORDS, BATCH_SIZE):
            rows = slice(start, start + BATCH_SIZE)
            yield {name: array[rows] for name, array in DATA.items()}


def only_positive(record):
    return record if record["x"][0] > 0 else None


IS_POSITIVE = DATA["x"][:, 0] > 0
PIPELINES = {
    "arrays": arrays(),
    "asked to drop": arrays(batch_drop_remainder=True),
    "asked to keep": arrays(batch_drop_remainder=False),
    "padded": arrays(batch_drop_remainder="pad"),
    "masked": arrays(batch_drop_remainder="pad", batch_mask_key="mask"),
    "in workers": kd.data.py.DataSource(
        [dict(zip(DATA, row)) for row in zip(*DATA.values())],
        shuffle=False,
        num_epochs=1,
        batch_size=BATCH_SIZE,
        num_workers=1,
    ),
    "in memory": in_memory(),
    "generated": Generated(batch_size=BATCH_SIZE),
    "changed": arrays().map(lambda batch: {n: batch[n] for n in ("x", "label")}),
    "filtered": arrays(transforms=[only_positive]),
}


def make(tmp_path, ds, *, cls=kd.evals.Evaluator, model=None, **changes):
    """An evaluator of an untrained classifier, and the state."""
    trainer = kd.train.Trainer(
        workdir=tmp_path,
        writer=None,
        train_ds=arrays(),
        model=model or Classifier(),
        optimizer=optax.adam(1e-3),
        num_train_steps=1,
        train_losses={
            "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
                logits="preds.logits", labels="batch.label"
            )
        },
        train_metrics={
            "accuracy": kd.metrics.Accuracy(logits="preds.logits", labels="batch.label")
        },
        evals={"e": cls(run=kd.evals.Once(0), ds=ds, **changes)},
    )
    return trainer.evals["e"], initial_state(trainer.model)


@functools.cache
def initial_state(model):
    """The same for all evaluators."""
    trainer = kd.train.Trainer(
        train_ds=arrays(), model=model, optimizer=optax.adam(1e-3)
    )
    return trainer.init_state()


def values(aux):
    output = aux.compute()
    return {**output.loss_values, **output.metric_values}


def logits_of(state):
    params = jax.device_get(state.params["dense"])
    return (DATA["x"] + np.float32(0.1)) @ params["kernel"] + params["bias"]


def expected(state, rows=slice(None)):
    logits, labels = logits_of(state)[rows], DATA["label"][rows]
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return {
        "losses/xent": -np.mean(np.take_along_axis(log_probs, labels, axis=-1)),
        "metrics/accuracy": np.mean(logits.argmax(-1) == labels[:, 0]),
    }


def assert_values(aux, wanted):
    found = values(aux)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", PIPELINES)
def test_every_record_counts_once(tmp_path, name):
    ds = PIPELINES[name]
    evaluator, state = make(tmp_path, ds)
    rows = IS_POSITIVE if name == "filtered" else slice(None)
    for step in range(2):
        aux = evaluator.evaluate(state, step)
        assert float(aux.metric_states["accuracy"].count) == len(DATA["x"][rows])
        assert_values(aux, expected(state, rows))


def test_step_is_compiled_once(tmp_path, caplog):
    caplog.set_level("INFO")
    evaluator, state = make(tmp_path, arrays())
    evaluator.evaluate(state, 0)
    assert "compiled once more" not in caplog.text


def test_some_batches_are_the_first_ones(tmp_path):
    for num_batches, rows in ((2, 2 * BATCH_SIZE), (9, NUM_RECORDS)):
        evaluator, state = make(tmp_path, arrays(), num_batches=num_batches)
        assert_values(evaluator.evaluate(state, 0), expected(state, slice(rows)))


def test_cached_batches_are_masked_too(tmp_path):
    evaluator, state = make(tmp_path, arrays(), cache=True)
    for step in range(2):
        assert_values(evaluator.evaluate(state, step), expected(state))


def test_model_without_keys_does_not_see_the_mask(tmp_path):
    evaluator, state = make(tmp_path, arrays(), model=WholeBatch())
    assert_values(evaluator.evaluate(state, 0), expected(state))


def test_data_is_read_once_for_training_and_evaluation(tmp_path):
    calls = []

    def loader():
        calls.append(1)
        return DATA

    ds = kd.data.InMemoryPipeline(loader=loader, num_epochs=1, batch_size=BATCH_SIZE)
    evaluator, state = make(tmp_path, ds)
    evaluator.evaluate(state, 0)
    assert len(evaluator.ds) == NUM_RECORDS // BATCH_SIZE  # as it was
    assert len(calls) == 1


def test_histogram_counts_no_filler(tmp_path):
    summaries = {"x": kd.summaries.HistogramSummary(tensor="batch.x")}
    evaluator, state = make(tmp_path, arrays(), summaries=summaries)
    output = evaluator.evaluate(state, 0).compute()
    histogram = output.summary_values["summaries/x"]
    np.testing.assert_array_equal(histogram.tensor, DATA["x"].ravel())


#
# What cannot be masked
#


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Mean(kd.metrics.Metric):
    """Knows of no mask."""

    tensor: kontext.Key = kontext.REQUIRED

    State = kd.metrics.AverageState

    def get_state(self, tensor):
        return kd.metrics.AverageState.from_values(tensor)


class Bare(kd.evals.Evaluator):
    """Makes a new batch, and forgets the mask."""

    def _step(self, step_nr, state, batch):
        batch = {"x": batch["x"], "label": batch["label"]}
        return super()._step(step_nr, state, batch)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metrics": {"mean": Mean(tensor="batch.x")}}, "metrics/mean"),
        ({"losses": {"own": kd.losses.Value(values="preds.mean")}}, "loss 'own'"),
        ({"cls": Bare}, "Bare._step drops the mask"),
    ],
    ids=["metric", "loss of the model", "step"],
)
def test_what_cannot_be_masked_is_measured_without_filler(
    tmp_path, changes, reason, caplog
):
    """Nothing is counted that is not there; what is left out is said."""
    caplog.set_level("INFO")
    evaluator, state = make(tmp_path, arrays(), **changes)
    if ON_ONE_DEVICE:
        aux, rows = evaluator.evaluate(state, 0), NUM_RECORDS
        assert reason in caplog.text or "cls" in changes
    else:
        with pytest.warns(UserWarning, match=f"(?s)leaves out.*{reason}"):
            aux = evaluator.evaluate(state, 0)
        rows = NUM_RECORDS // BATCH_SIZE * BATCH_SIZE
    wanted = expected(state, slice(rows))
    if "metrics" in changes:
        wanted["metrics/mean"] = DATA["x"][:rows].mean()
        del wanted["metrics/accuracy"]
    if "losses" in changes:
        batches = np.split(logits_of(state)[:rows], range(BATCH_SIZE, rows, BATCH_SIZE))
        wanted["losses/own"] = np.mean([batch.mean() for batch in batches])
        del wanted["losses/xent"]
    assert_values(aux, wanted)


class HandsOn(kd.evals.Evaluator):
    """Changes one entry of the batch."""

    def _step(self, step_nr, state, batch):
        return super()._step(step_nr, state, {**batch, "x": 1 * batch["x"]})


def test_own_step_that_hands_on_the_batch_sees_every_record(tmp_path):
    evaluator, state = make(tmp_path, arrays(), cls=HandsOn)
    assert_values(evaluator.evaluate(state, 0), expected(state))


def test_mask_that_is_set_is_used_instead(tmp_path):
    metrics = {
        "accuracy": kd.metrics.Accuracy(
            logits="preds.logits", labels="batch.label", mask="batch.chosen"
        )
    }
    chosen = np.arange(NUM_RECORDS) % 2 == 0
    ds = kd.data.py.Arrays(
        {**DATA, "chosen": chosen[:, None]},
        shuffle=False,
        num_epochs=1,
        batch_size=BATCH_SIZE,
    )
    evaluator, state = make(tmp_path, ds, metrics=metrics)
    found = values(evaluator.evaluate(state, 0))["metrics/accuracy"]
    wanted = expected(state, chosen)["metrics/accuracy"]
    assert found == pytest.approx(wanted)


def test_records_that_are_no_dicts_are_not_padded(tmp_path):
    class Second(nn.Module):
        @nn.compact
        def __call__(self, batch):
            return {"logits": nn.Dense(3, name="dense")(batch[0] + 0.1)}

    ds = kd.data.py.Arrays(
        tuple(DATA.values()),
        shuffle=False,
        num_epochs=1,
        batch_size=BATCH_SIZE,
    )
    metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds.logits", labels="batch[1]")
    }
    evaluator, _ = make(tmp_path, ds, metrics=metrics, losses={})
    trainer = evaluator.base_cfg.replace(model=Second(), train_ds=ds)
    evaluator, state = trainer.evals["e"], trainer.init_state()
    if ON_ONE_DEVICE:
        aux, rows = evaluator.evaluate(state, 0), NUM_RECORDS
    else:
        with pytest.warns(UserWarning, match="make the records dicts"):
            aux = evaluator.evaluate(state, 0)
        rows = NUM_RECORDS // BATCH_SIZE * BATCH_SIZE
    wanted = expected(state, slice(rows))
    assert values(aux)["metrics/accuracy"] == pytest.approx(wanted["metrics/accuracy"])


#
# Other evaluators
#


def test_few_shot_evaluator_uses_every_record(tmp_path):
    evaluator = kd.evals.FewShotEvaluator(
        run=kd.evals.Once(0),
        ds_train=arrays(),
        ds_val=arrays(batch_drop_remainder="pad"),
        ds_test=arrays(batch_drop_remainder=False),
        metric_prefix="toy",
        num_classes=3,
        num_shots=(2,),
        label_name="batch.label",
        repr_names={"x": "batch.x"},
    )
    first, state = make(tmp_path, arrays())
    trainer = first.base_cfg.replace(evals={"few": evaluator})
    for name in ("ds_train", "ds_val", "ds_test"):
        few = trainer.evals["few"]
        features, labels = few.compute_features(state, getattr(few, name), name)
        np.testing.assert_array_equal(features["x"], DATA["x"])
        np.testing.assert_array_equal(labels, DATA["label"][:, 0])


def test_checkpointed_evaluator_uses_every_record(tmp_path):
    evaluator, state = make(
        tmp_path,
        arrays(),
        cls=kd.contrib.evals.CheckpointedEvaluator,
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=2),
    )
    assert_values(evaluator.evaluate(state, 0), expected(state))


#
# Training
#


def test_filler_has_no_part_in_training(tmp_path):
    """The only batch is padded: the update is that of the real records."""
    real = {name: array[:8] for name, array in DATA.items()}
    states = []
    for ds in (
        kd.data.py.Arrays(
            {name: array[:5] for name, array in DATA.items()},
            shuffle=False,
            num_epochs=1,
            batch_size=8,
            batch_drop_remainder="pad",
        ),
        kd.data.py.Arrays(
            {**real, "weight": np.arange(8)[:, None] < 5},
            shuffle=False,
            num_epochs=1,
            batch_size=8,
        ),
    ):
        evaluator, _ = make(tmp_path, arrays())
        trainer = evaluator.base_cfg.replace(
            train_ds=ds, evals={}, profiler=None, optimizer=optax.sgd(1.0)
        )
        if "weight" in ds.element_spec:
            (loss,) = trainer.train_losses.values()
            loss = dataclasses.replace(loss, mask="batch.weight")
            trainer = trainer.replace(train_losses={"xent": loss})
        states.append(trainer.train()[0].params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *states
    )


def test_metric_of_training_that_would_count_filler_is_refused(tmp_path):
    evaluator, _ = make(tmp_path, arrays())
    trainer = evaluator.base_cfg.replace(
        train_ds=arrays(batch_drop_remainder=DropRemainder.PAD),
        train_metrics={"mean": Mean(tensor="batch.x")},
        evals={},
        profiler=None,
    )
    with pytest.raises(ValueError, match=r"(?s)metrics/mean.*takes no `mask`"):
        trainer.train()
