"""Checkpoints of real runs."""

import dataclasses
import json
import pickle
import resource

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import kd, konfig, writers
from kauldron.ckpts import orbax_io, save_session
from tests.ckpts.states import assert_equal
from tests.train.toy import Linear, make_arrays, make_ds, make_trainer


def _saved(**kwargs):
    return kd.ckpts.Checkpointer(**{"save_interval_steps": 4, **kwargs})


def _steps(workdir):
    root = workdir / "checkpoints"
    return sorted(int(path.name.removeprefix("ckpt_")) for path in root.iterdir())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A trainer whose run is complete, and its last state: both to be read only."""
    trainer = make_trainer(tmp_path_factory.mktemp("finished"), log_metrics_every=1)
    state, _ = trainer.train()
    return trainer, state


@pytest.mark.parametrize(
    "kwargs, kept",
    [
        ({"save_interval_steps": 3, "max_to_keep": 2}, [9, 10]),
        ({"save_interval_steps": 5, "max_to_keep": None}, [0, 5, 10]),
        ({"max_to_keep": None, "never_save_step_zero": True}, [4, 8, 10]),
        ({"max_to_keep": 1, "save_on_steps": [1, 7], "keep_period": 7}, [0, 7, 10]),
    ],
)
def test_run_leaves_the_newest_multiples_and_the_last_step(tmp_path, kwargs, kept):
    make_trainer(tmp_path, checkpointer=_saved(**kwargs)).train()
    assert _steps(tmp_path) == kept


@pytest.mark.parametrize(
    "ds",
    [
        make_ds(),
        kd.data.InMemoryPipeline(
            loader=make_arrays, batch_size=16, shuffle=True, num_epochs=None
        ),
    ],
    ids=["arrays", "in_memory"],
)
def test_interrupted_run_ends_with_the_parameters_of_a_whole_one(tmp_path, ds):
    fields = {"train_ds": ds, "model": Linear(x="batch.x", rate=0.5)}
    whole, _ = make_trainer(tmp_path / "whole", checkpointer=None, **fields).train()
    failing = make_trainer(tmp_path / "half", **fields).replace(
        train_ds=ds.map(_FailAfter(batches=6))
    )
    with pytest.raises(ArithmeticError, match="out of data"):
        failing.train()
    # The save was under way when the loop failed, or before.
    assert _steps(tmp_path / "half") == [0, 4]
    rest, _ = make_trainer(tmp_path / "half", **fields).train()
    assert_equal(rest, whole)


class _FailAfter:
    """Gives a number of batches, and then an error."""

    def __init__(self, *, batches):
        self.left = batches

    def __call__(self, batch):
        self.left -= 1
        if self.left < 0:
            raise ArithmeticError("out of data")
        return batch


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_run_goes_on_from_the_one_before_if_the_newest_is_damaged(
    tmp_path, caplog, finished
):
    _, whole = finished
    half = make_trainer(tmp_path / "half", stop_after_steps=8)
    half.train()
    newest = tmp_path / "half" / "checkpoints" / "ckpt_8"
    (newest / "default" / "manifest.ocdbt").unlink()
    rest, _ = half.replace(stop_after_steps=None).train()
    assert "ckpt_8 cannot be read" in caplog.text
    assert_equal(rest, whole)
    again = half.replace(stop_after_steps=None)
    assert again.checkpointer.all_steps == [4, 8, 10]
    assert_equal(again.checkpointer.restore(again.init_state(), step=10), whole)
    assert int(again.checkpointer.restore(again.init_state(), step=8).step) == 8


def test_state_comes_back_on_the_shardings_of_the_state(finished):
    trainer, state = finished
    target = trainer.init_state()
    shardings = jax.tree.map(lambda x: x.sharding, target)
    restored = trainer.checkpointer.restore(target, step=-1)
    assert isinstance(restored, kd.train.TrainState)
    assert_equal(restored, state)
    assert jax.tree.map(lambda x: x.sharding, restored) == shardings
    assert_equal(trainer.checkpointer.restore(trainer.state_specs), state)
    everything = kd.ckpts.items.StandardCheckpointItem()
    stored = trainer.checkpointer.restore(everything)
    assert set(stored) == {"step", "params", "collections", "opt_state"}


def test_time_of_saving_is_reported_by_itself(finished):
    lines = writers.read_scalars(finished[0].workdir / "train")
    names = {name for line in lines for name in line["values"]}
    assert "perf_stats/checkpoint/avg_time_sec" in names


def test_run_rebuilt_from_its_files_has_its_weights(tmp_path):
    with konfig.imports():
        import optax as optax_cfg

        from kauldron import kd as kd_cfg
        from tests.train import toy

    ds = kd_cfg.data.py.Arrays(toy.make_arrays, shuffle=True, batch_size=16)
    cfg = kd_cfg.train.Trainer(
        workdir=str(tmp_path),
        train_ds=ds,
        eval_ds=ds,  # shared by two parts of the config
        model=toy.Linear(x="batch.x"),
        train_losses={"l2": kd_cfg.losses.L2(preds="preds.y", targets="batch.y")},
        optimizer=optax_cfg.adam(1e-2),
        checkpointer=kd_cfg.ckpts.Checkpointer(save_interval_steps=2),
        num_train_steps=3,
        profiler=None,
    )
    state, _ = konfig.resolve(cfg).train()
    content = json.loads((tmp_path / "config.json").read_text())
    for description in (content, konfig.ConfigDict(content)):
        trainer = kd.konfig.resolve(description)
        restored = trainer.checkpointer.restore(trainer.init_state())
        assert_equal(restored, state)


#
# Loading other runs
#


class Refusing(kd.ckpts.InitTransform):
    def transform(self, state):
        raise AssertionError("init transforms are for fresh starts")


def test_resuming_does_not_run_init_transforms(tmp_path):
    make_trainer(tmp_path, stop_after_steps=4).train()
    state, _ = make_trainer(tmp_path, init_transform=Refusing()).train()
    assert int(state.step) == 10
    with pytest.raises(AssertionError, match="fresh starts"):
        make_trainer(tmp_path / "fresh", init_transform=Refusing()).train()


def test_fine_tuning_starts_from_the_loaded_weights(tmp_path, finished):
    trainer, source = finished
    loader = kd.ckpts.SimpleCheckpointLoader(workdir=trainer.workdir)
    tuned = make_trainer(
        tmp_path / "tuned",
        num_train_steps=2,
        init_transform=loader,
        optimizer=optax.chain(kd.optim.decay_to_init(0.5), optax.sgd(0.1)),
    )
    state = tuned.init_state()
    assert_equal(state.params, source.params)
    assert int(state.step) == 0
    assert_equal(state.opt_state[0].init_params, source.params)
    trained, _ = tuned.train()
    assert_equal(trained.opt_state[0].init_params, source.params)


def test_experiment_continues_in_another_workdir(tmp_path, finished):
    make_trainer(tmp_path / "first", num_train_steps=9, stop_after_steps=5).train()
    names = {name: name for name in ("step", "params", "collections", "opt_state")}
    loader = kd.ckpts.PartialKauldronLoader(
        workdir=tmp_path / "first", new_to_old=names
    )
    second = make_trainer(tmp_path / "second", num_train_steps=9, init_transform=loader)
    begin = second.init_state()
    assert int(begin.step) == 5 and int(begin.opt_state[0].count) == 5
    state, _ = second.train()
    assert int(state.step) == 9 and int(state.opt_state[0].count) == 9
    assert _steps(tmp_path / "second") == [5, 8, 9]
    points = writers.read_scalars(tmp_path / "second" / "train")
    assert points[0]["step"] == 5
    assert jax.tree.structure(state) == jax.tree.structure(finished[1])


def test_model_that_got_larger_keeps_its_new_parts(tmp_path, finished):
    trainer, source = finished
    loader = kd.ckpts.PartialKauldronLoader(
        workdir=trainer.workdir,
        new_to_old={"params.dense.kernel": "params.dense.kernel"},
    )
    state = make_trainer(tmp_path / "new", init_transform=loader).init_state()
    np.testing.assert_array_equal(
        state.params["dense"]["kernel"], source.params["dense"]["kernel"]
    )
    np.testing.assert_array_equal(state.params["dense"]["bias"], np.zeros(2))


#
# Keeping the best
#


class Scripted(kd.evals.EvaluatorBase):
    """An evaluator with foreseen values."""

    values: tuple[float, ...] = ()

    def evaluate(self, state, step):
        return kd.train.AuxiliariesOutput(
            metric_values={"accuracy": jnp.float32(self.values[step])},
            loss_values={"l2": -self.values[step]},
        )


@pytest.mark.parametrize(
    "path, mode", [("my_eval.accuracy", "max"), ("my_eval.losses.l2", "min")]
)
def test_best_and_newest_stay_and_a_restart_goes_on_from_the_newest(
    tmp_path, path, mode
):
    evaluator = Scripted(
        run=kd.evals.EveryNSteps(1), values=(0.1, 0.9, 0.8, 0.3, 0.2, 0.1, 0.4)
    )
    checkpointer = _saved(
        save_interval_steps=1, max_to_keep=1, best_metric_path=path, best_mode=mode
    )
    trainer = make_trainer(
        tmp_path,
        num_train_steps=6,
        stop_after_steps=4,
        evals={"my_eval": evaluator},
        checkpointer=checkpointer,
    )
    trainer.train()
    assert trainer.checkpointer.all_steps == [1, 4]
    assert trainer.checkpointer.best_step == 1
    rest = trainer.replace(stop_after_steps=None)
    state, _ = rest.train()
    assert int(state.step) == 6
    assert rest.checkpointer.all_steps == [1, 6]
    assert rest.checkpointer.best_step == 1


def test_values_of_training_can_rank_if_the_step_before_was_logged(tmp_path):
    checkpointer = _saved(
        max_to_keep=None, best_metric_path="train.losses.l2", best_mode="min"
    )
    trainer = make_trainer(tmp_path, log_metrics_every=1, checkpointer=checkpointer)
    trainer.train()
    points = {
        line["step"]: line["values"]["losses/l2"]
        for line in writers.read_scalars(tmp_path / "train")
        if "losses/l2" in line["values"]
    }
    saved = {step: points[step - 1] for step in (4, 8, 10)}
    assert trainer.checkpointer.best_step == min(saved, key=saved.get)
    path = tmp_path / "checkpoints/ckpt_8/metrics/metrics"
    stored = json.loads(path.read_text())["train"]
    assert stored["losses"]["l2"] == pytest.approx(points[7])
    assert "norm" in stored


def test_metric_that_no_evaluation_has_stops_the_run_with_a_suggestion(tmp_path):
    trainer = make_trainer(
        tmp_path,
        eval_ds=make_ds(),
        evals={
            "my_eval": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4), num_batches=1)
        },
        checkpointer=_saved(best_metric_path="my_eval.losses.l1"),
    )
    with pytest.raises(ValueError, match=r"Did you mean 'my_eval\.losses\.l2'"):
        trainer.train()
    assert not (tmp_path / "checkpoints").exists()


#
# Disks that are full
#


def _fill_disk_for(monkeypatch, steps):
    """Saves of some steps find no room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    start = orbax_io.start_save

    def start_save(checkpointer, folder, *args, **kwargs):
        is_full = int(folder.name.removeprefix("ckpt_")) in steps
        limit = 100 if is_full else soft
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            return start(checkpointer, folder, *args, **kwargs)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr(orbax_io, "start_save", start_save)
    monkeypatch.setattr(save_session.time, "sleep", lambda seconds: None)


full_disks = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


@full_disks
def test_full_disk_stops_the_run_with_path_and_cause(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path)
    _fill_disk_for(monkeypatch, {4})
    with pytest.raises(OSError, match=r"Saving .*ckpt_4 failed: .*too large"):
        trainer.train()
    monkeypatch.undo()
    assert _steps(tmp_path) == [0]
    assert not (tmp_path / "train_complete.txt").exists()
    state, _ = trainer.train()
    assert int(state.step) == 10 and _steps(tmp_path) == [4, 8, 10]


@full_disks
def test_full_disk_with_warn_costs_only_that_checkpoint(
    tmp_path, monkeypatch, caplog, finished
):
    checkpointer = _saved(on_save_error="warn", max_to_keep=None)
    trainer = make_trainer(tmp_path / "run", checkpointer=checkpointer)
    _fill_disk_for(monkeypatch, {4})
    state, _ = trainer.train()
    assert "ckpt_4 failed" in caplog.text
    assert_equal(state, finished[1])
    assert _steps(tmp_path / "run") == [0, 8, 10]
    assert (tmp_path / "run" / "train_complete.txt").exists()


@full_disks
def test_run_whose_last_step_could_not_be_saved_is_not_complete(
    tmp_path, monkeypatch, caplog
):
    trainer = make_trainer(tmp_path, checkpointer=_saved(on_save_error="warn"))
    _fill_disk_for(monkeypatch, {10})
    trainer.train()
    monkeypatch.undo()
    assert "the run is not complete" in caplog.text
    assert not (tmp_path / "train_complete.txt").exists()
    state, _ = trainer.train()
    assert int(state.step) == 10
    assert (tmp_path / "train_complete.txt").exists()


#
# Changing the initial state
#


@dataclasses.dataclass(frozen=True)
class Scale(kd.ckpts.InitTransform):
    """Adds, then multiplies: order shows."""

    plus: float = 0.0
    times: float = 1.0

    def transform(self, state):
        bias = (state.params["dense"]["bias"] + self.plus) * self.times
        dense = {**state.params["dense"], "bias": bias}
        return state.replace(params={**state.params, "dense": dense})


class Failing(kd.ckpts.InitTransform):
    def transform(self, state):
        raise ValueError("out of coffee")


@dataclasses.dataclass(frozen=True)
class Widen(kd.ckpts.InitTransform):
    def transform(self, state):
        dense = {**state.params["dense"], "bias": jnp.zeros((7,), jnp.bfloat16)}
        return state.replace(params={"dense": dense, "more": jnp.zeros(1)})


def test_several_apply_in_order(tmp_path):
    transform = kd.ckpts.MultiTransform(first=Scale(plus=1.0), second=Scale(times=3.0))
    state = make_trainer(tmp_path, init_transform=transform).init_state()
    assert state.params["dense"]["bias"].tolist() == [3, 3]


def test_failing_one_is_named(tmp_path):
    transform = kd.ckpts.MultiTransform(fine=Scale(), bad=Failing())
    with pytest.raises(ValueError, match="Init transform 'bad': out of coffee"):
        make_trainer(tmp_path, init_transform=transform).init_state()


def test_several_are_a_value():
    def make(plus):
        return kd.ckpts.MultiTransform(a=Scale(plus=plus), b=kd.ckpts.NoopTransform())

    assert make(1.0) == make(1.0) != make(2.0)
    assert hash(make(1.0)) == hash(make(1.0))
    assert pickle.loads(pickle.dumps(make(1.0))) == make(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        make(1.0).transforms = {}


def test_several_come_from_configs():
    with konfig.imports():
        from kauldron import kd as kd_cfg
    cfg = kd_cfg.ckpts.MultiTransform(
        b=kd_cfg.ckpts.NoopTransform(), a=kd_cfg.ckpts.NoopTransform()
    )
    assert list(konfig.resolve(cfg).transforms) == ["b", "a"]


def test_none_is_the_transform_that_does_nothing(tmp_path):
    trainer = make_trainer(tmp_path, init_transform=None, checkpointer=None)
    assert trainer.init_transform == kd.ckpts.NoopTransform()
    assert trainer.checkpointer == kd.ckpts.NoopCheckpointer()
    state = trainer.init_state()
    assert trainer.init_transform.transform(state) is state


def test_shapes_and_names_must_stay(tmp_path):
    trainer = make_trainer(tmp_path, init_transform=Widen())
    with pytest.raises(ValueError) as error:
        trainer.init_state()
    message = str(error.value)
    assert "Widen may change values only" in message
    assert "params.dense.bias: float32(2,) to bfloat16(7,)" in message
    assert "params.more: nothing to float32(1,)" in message


def test_transforms_can_be_skipped_and_specs_do_not_need_them(tmp_path):
    trainer = make_trainer(tmp_path, init_transform=Failing())
    trainer.init_state(skip_transforms=True)
    assert trainer.state_specs.params["dense"]["bias"].shape == (2,)


def test_mistakes_of_loaders_are_found_without_their_source(tmp_path):
    def load(**kwargs):
        return kd.ckpts.PartialKauldronLoader(workdir="nowhere", **kwargs)

    transform = kd.ckpts.MultiTransform(
        fine=load(ignore_model_keys=("dense.bias",)),
        first=load(ignore_model_keys=("dens.**",)),
        second=load(new_to_old={"params.dens": "params"}),
    )
    trainer = make_trainer(tmp_path, init_transform=transform)
    found = kd.train.problems.find_with_state(trainer, trainer.state_specs)
    first, second = map(str, found)
    assert first.startswith("cfg.init_transform.first: `ignore_model_keys` has 'dens")
    assert second.startswith(
        "cfg.init_transform.second: `new_to_old` has 'params.dens'"
    )
    assert "Did you mean 'dense'" in first and "Did you mean 'dense'" in second


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class InMemory(kd.ckpts.BaseCheckpointer):
    """Has the arguments of `save` that every checkpointer has had."""

    saved: dict = dataclasses.field(default_factory=dict)

    def restore(self, state, *, step=-1, noop_if_missing=False, donate=True):
        return state

    def should_save(self, step):
        return step % 2 == 0

    def save(self, state, *, step, force=False, metrics=None):
        self.saved[step] = int(state.train_state.step)
        return True

    @property
    def all_steps(self):
        return []  # those of an earlier start

    def iter_new_checkpoints(self, **kwargs):
        return iter(())


def test_checkpointer_of_a_user_takes_no_metadata(tmp_path):
    checkpointer = InMemory()
    make_trainer(tmp_path, num_train_steps=4, checkpointer=checkpointer).train()
    assert checkpointer.saved == {0: 0, 2: 2, 4: 4}
