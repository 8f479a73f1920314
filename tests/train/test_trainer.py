"""The root object: its fields, what its parts inherit, and the parts of a job."""

import dataclasses
import functools
import json

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from kauldron import kd, konfig
from tests.train.toy import Linear, make_ds, make_trainer, step_fields

#
# Construction
#


@pytest.mark.parametrize(
    ("missing", "call"),
    [
        ("model", lambda trainer: trainer.init_state()),
        ("train_ds", lambda trainer: trainer.init_state()),
        ("optimizer", lambda trainer: trainer.train()),
    ],
)
def test_missing_part_is_named_when_it_is_needed(tmp_path, missing, call):
    trainer = make_trainer(tmp_path, **{missing: None})
    with pytest.raises(ValueError, match=rf"`trainer.{missing}` is not set; set `cfg"):
        call(trainer)


def test_losses_can_be_given_as_losses_or_as_one_train_loss(tmp_path):
    loss = kd.losses.L2(preds="preds.y", targets="batch.y")
    by_losses = make_trainer(tmp_path, train_losses={}, losses={"a": loss})
    assert by_losses.train_losses == {"a": loss}
    single = make_trainer(tmp_path, train_losses={}, train_loss=loss)
    assert single.train_losses == {"loss": loss}
    assert single.trainstep.aux.losses == {"loss": loss}


def test_giving_losses_twice_names_both(tmp_path):
    loss = kd.losses.L2(preds="preds.y", targets="batch.y")
    with pytest.raises(ValueError, match="losses and train_losses are both set"):
        make_trainer(tmp_path, losses={"a": loss})


def test_aliases_survive_replace_and_are_no_fields(tmp_path):
    loss = kd.losses.L2(preds="preds.y", targets="batch.y")
    trainer = make_trainer(tmp_path, train_losses={}, train_loss=loss)
    assert trainer.replace(seed=3).train_losses == {"loss": loss}
    names = [field.name for field in dataclasses.fields(trainer)]
    assert "train_loss" not in names and "losses" not in names
    assert "train_loss=" not in repr(trainer)


def test_none_becomes_a_part_that_does_nothing(tmp_path):
    names = [
        "evals",
        "checkpointer",
        "init_transform",
        "profiler",
        "writer",
        "exporter",
        "schedules",
    ]
    names += [
        "train_metrics",
        "train_summaries",
        "aux",
        "setup",
        "rng_streams",
        "sharding",
    ]
    trainer = make_trainer(tmp_path, trainstep=None, **dict.fromkeys(names))
    assert isinstance(trainer.checkpointer, kd.ckpts.NoopCheckpointer)
    assert isinstance(trainer.writer, kd.train.NoopWriter)
    assert isinstance(trainer.trainstep, kd.train.TrainStep)
    assert (
        trainer.evals == {} and trainer.schedules == {} and trainer.train_metrics == {}
    )
    state, _ = trainer.replace(num_train_steps=2).train()
    assert int(state.step) == 2


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("writer", "tensorboard", "`trainer.writer` must be a WriterBase, got str"),
        ("optimizer", (optax.sgd(1.0),), "is there a comma after it?"),
        ("init_transform", "run", "`trainer.init_transform` must be an InitTransform"),
        ("checkpointer", 5, "`trainer.checkpointer` must be a BaseCheckpointer"),
        ("trainstep", lambda: 0, "`trainer.trainstep` must be a TrainStep"),
        ("setup", {"tags": 1}, "`trainer.setup` must be a Setup"),
        ("num_train_steps", -1, "`trainer.num_train_steps` must be at least 0"),
        ("stop_after_steps", -5, "`trainer.stop_after_steps` must be at least 0"),
        ("num_train_steps", np.int64(-4), "must be at least 0, got -4."),
        ("log_metrics_every", -1, "`trainer.log_metrics_every` must be at least 1"),
        ("log_summaries_every", -2, "`trainer.log_summaries_every` must be at least 1"),
        ("steps_per_dispatch", 0, "`trainer.steps_per_dispatch` must be 'auto' or"),
        ("on_nonfinite", "panic", "'ignore', 'warn' or 'raise', got 'panic'"),
    ],
)
def test_wrong_field_is_named_with_what_was_found(tmp_path, field, value, words):
    with pytest.raises(ValueError) as error:
        make_trainer(tmp_path, **{field: value})
    assert words in str(error.value)


@pytest.mark.parametrize("field", ["evals", "train_losses", "schedules"])
def test_list_where_a_mapping_is_needed_is_a_type_error(tmp_path, field):
    with pytest.raises(TypeError, match=f"`trainer.{field}` must be a mapping"):
        make_trainer(tmp_path, **{field: [1]})


def test_value_in_evals_that_is_no_evaluator_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"evals\['a'\]` must be an evaluator.*int"):
        make_trainer(tmp_path, evals={"a": 3})


def test_unknown_field_suggests_the_nearest(tmp_path):
    with pytest.raises(TypeError, match="Did you mean 'optimizer'"):
        make_trainer(tmp_path, optimiser=optax.sgd(1.0))


def test_loss_called_total_is_warned_about(tmp_path):
    loss = kd.losses.L2(preds="preds.y", targets="batch.y")
    with pytest.warns(UserWarning, match="'total'"):
        make_trainer(tmp_path, train_losses={"total": loss})


#
# Inheritance
#


def test_seed_reaches_what_has_none_of_its_own(tmp_path):
    evals = {
        "inherits": kd.evals.Evaluator(run=kd.evals.Once(0), ds=make_ds()),
        "own": kd.evals.Evaluator(run=kd.evals.Once(0), ds=make_ds(seed=5)),
    }
    trainer = make_trainer(tmp_path, seed=3, eval_ds=make_ds(seed=7), evals=evals)
    assert trainer.train_ds.seed == trainer.rng_streams.seed == 3
    assert trainer.eval_ds.seed == 7
    assert trainer.evals["inherits"].ds.seed == 3 and trainer.evals["own"].ds.seed == 5
    changed = trainer.replace(seed=4)
    assert changed.train_ds.seed == changed.rng_streams.seed == 4
    assert changed.evals["inherits"].ds.seed == 4
    assert changed.eval_ds.seed == 7 and changed.evals["own"].ds.seed == 5


def test_seed_set_on_a_part_by_replace_stays(tmp_path):
    trainer = make_trainer(tmp_path, seed=3)
    own = trainer.replace(train_ds=dataclasses.replace(trainer.train_ds, seed=100))
    assert own.replace(seed=8).train_ds.seed == 100


def test_workdir_reaches_checkpointer_and_writers(tmp_path):
    evals = {"e": kd.evals.Evaluator(run=kd.evals.Once(0), ds=make_ds())}
    trainer = make_trainer(tmp_path / "a", evals=evals)
    moved = trainer.replace(workdir=str(tmp_path / "b"))
    for part in (moved.checkpointer, moved.writer, moved.evals["e"].writer):
        assert part.workdir == moved.workdir
    assert moved.writer.collection == "train"
    assert moved.evals["e"].writer.collection == "e"


def test_evaluator_follows_the_trainer_unless_it_has_its_own(tmp_path):
    evals = {
        "inherits": kd.evals.Evaluator(run=kd.evals.Once(0), ds=make_ds()),
        "none": kd.evals.Evaluator(run=kd.evals.Once(0), ds=make_ds(), metrics={}),
    }
    trainer = make_trainer(tmp_path, evals=evals)
    assert trainer.evals["inherits"].metrics == trainer.train_metrics
    assert trainer.evals["inherits"].base_cfg is trainer
    changed = trainer.replace(train_metrics={})
    assert changed.evals["inherits"].metrics == {}
    assert trainer.evals["none"].metrics == {} == changed.evals["none"].metrics


#
# Mid-level use
#


def test_steps_by_hand_advance_the_state_and_lower_the_loss(tmp_path):
    trainer = make_trainer(tmp_path)
    state = trainer.init_state()
    losses = []
    with pytest.warns(DeprecationWarning, match="batch"):
        batches = trainer.train_ds.device_put(trainer.sharding.ds)
    for index, batch in enumerate(batches):
        state, aux = trainer.trainstep.step(state, batch, return_losses=True)
        losses.append(aux.compute().loss_values["losses/l2"])
        assert int(state.step) == index + 1
        if index == 60:
            break
    assert losses[-1] < 0.5 * losses[0]


def test_state_specs_describe_the_state_without_computing_it(tmp_path):
    trainer = make_trainer(tmp_path)
    specs = trainer.state_specs
    leaves = jax.tree.leaves(specs)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    state = trainer.init_state()
    assert jax.tree.structure(specs) == jax.tree.structure(state)
    jax.tree.map(
        lambda spec, array: np.testing.assert_equal(
            (spec.shape, spec.dtype), (array.shape, array.dtype)
        ),
        specs,
        state,
    )
    assert specs.step.dtype == np.int32 and not state.step.weak_type


def test_context_specs_show_what_keys_can_name(tmp_path):
    context = make_trainer(tmp_path).context_specs
    flat = context.flatten()
    assert flat["preds.y"].shape == (16, 2)
    assert flat["grads.dense.kernel"].shape == (4, 2)
    assert "interms.dense.__call__[0]" in flat


def test_step_with_checks_but_without_the_field_names_it(tmp_path):
    from jax.experimental import checkify

    class Checked(nn.Module):
        @nn.compact
        def __call__(self, batch):
            checkify.check(batch["x"].sum() < 1e9, "too large")
            return {"y": nn.Dense(2, name="dense")(batch["x"])}

    trainer = make_trainer(tmp_path, model=Checked(), train_metrics={}, writer=None)
    trainer.init_state()  # checks are ignored here
    with pytest.raises(ValueError) as error:
        trainer.train()
    assert any("checkify_error_categories" in note for note in error.value.__notes__)


def test_model_without_keys_gets_the_whole_batch(tmp_path):
    class WholeBatch(nn.Module):
        @nn.compact
        def __call__(self, batch):
            return {"y": nn.Dense(2, name="dense")(batch["x"])}

    changes = {"num_train_steps": 2, "checkpointer": None}
    state, _ = make_trainer(tmp_path, model=WholeBatch(), **changes).train()
    assert int(state.step) == 2


def test_model_without_parameters_trains(tmp_path):
    trainer = make_trainer(
        tmp_path,
        model=kd.nn.DummyModel(),
        num_train_steps=2,
        train_losses={"v": kd.losses.Value(values="preds.logits")},
        train_metrics={},
    )
    state, _ = trainer.train()
    assert state.params == {} and int(state.step) == 2


def test_batch_statistics_are_carried_in_collections(tmp_path):
    class Normed(nn.Module):
        is_training = kd.nn.train_property()

        @nn.compact
        def __call__(self, batch):
            x = nn.BatchNorm(use_running_average=not self.is_training)(batch["x"])
            return {"y": nn.Dense(2, name="dense")(x)}

    trainer = make_trainer(tmp_path, model=Normed(), num_train_steps=2)
    before = trainer.init_state().collections["batch_stats"]["BatchNorm_0"]["mean"]
    state, _ = trainer.train()
    after = state.collections["batch_stats"]["BatchNorm_0"]["mean"]
    assert not np.allclose(before, after)


#
# What a run leaves
#


def _get_config(workdir):
    with konfig.imports():
        import optax

        from kauldron import kd
        from tests.train import toy

    cfg = kd.train.Trainer()
    cfg.workdir = str(workdir)
    cfg.seed = 1
    cfg.train_ds = kd.data.py.Arrays(toy.make_arrays, shuffle=True, batch_size=16)
    cfg.model = toy.Linear(x="batch.x")
    cfg.train_losses = {"l2": kd.losses.L2(preds="preds.y", targets="batch.y")}
    cfg.optimizer = optax.adam(1e-2)
    cfg.num_train_steps = 3
    cfg.profiler = None
    cfg.setup = kd.train.Setup(tags="a, b", note_template="seed {cfg.seed}")
    return cfg


@functools.cache
def _shared_step():
    return step_fields(konfig.resolve(_get_config("unused")))


def _train(cfg):
    """Train a config whose step is the usual one; its programs are shared."""
    trainer = konfig.resolve(cfg)
    shared = _shared_step() | {"raw_cfg": trainer.raw_cfg}
    trainer.replace(**shared).train()


@pytest.mark.parametrize("writer", ["default", None])
def test_files_of_a_run_rebuild_it(tmp_path, writer):
    cfg = _get_config(tmp_path)
    if writer is None:
        cfg.writer = None
    _train(cfg)
    text = (tmp_path / "config.json").read_text()
    again = konfig.resolve(json.loads(text))
    assert again.seed == 1 and again.model == Linear(x="batch.x")
    spec = konfig.resolve(json.loads((tmp_path / "element_spec.json").read_text()))
    assert spec["x"].shape == (16, 4) and spec["x"].dtype == np.float32
    info = json.loads((tmp_path / "run_info.json").read_text())
    assert info["tags"] == ["a", "b"] and info["note"] == "seed 1"
    assert [start["step"] for start in info["starts"]] == [0]
    assert (tmp_path / "train_complete.txt").exists()


def test_changed_config_is_kept_beside_the_earlier_one(tmp_path):
    cfg = _get_config(tmp_path)
    with konfig.imports():
        from kauldron import kd
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=100)
    _train(cfg)
    first = (tmp_path / "config.json").read_text()
    cfg.num_train_steps = 5
    _train(cfg)
    assert (tmp_path / "config.3.json").read_text() == first
    assert json.loads((tmp_path / "config.json").read_text())["num_train_steps"] == 5


def test_editing_the_config_later_does_not_change_the_trainer(tmp_path):
    cfg = _get_config(tmp_path)
    trainer = konfig.resolve(cfg)
    cfg.seed = 99
    assert trainer.raw_cfg.seed == 1


def test_workdir_that_is_not_set_says_how_to_set_it():
    with pytest.raises(ValueError, match=r"cfg.workdir.*--cfg.workdir="):
        make_trainer("").train()
