"""An earlier run, read from its folder."""

import json
import shutil

import jax
import numpy as np
import pytest

from kauldron import kd, konfig
from tests.evals.experiments import make_cfg, resolve
from tests.train.toy import make_arrays


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete run and its last state."""
    workdir = tmp_path_factory.mktemp("finished")
    state, _ = resolve(make_cfg(workdir)).train()
    return workdir, state


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it."""
    shutil.copytree(finished[0], tmp_path / "run")
    return tmp_path / "run"


def predict(trainer, state):
    x = make_arrays()["x"]
    return trainer.model.apply({"params": state.params}, x, is_training_property=False)


def test_two_lines_give_the_predictions_of_the_run(finished):
    workdir, trained = finished
    trainer = kd.from_workdir.get_trainer(workdir)
    state = kd.from_workdir.get_state(workdir)
    assert int(state.step) == 10 and state.opt_state is None
    np.testing.assert_array_equal(
        predict(trainer, state)["y"], predict(trainer, trained)["y"]
    )


def test_optimizer_state_comes_if_asked_for(finished):
    workdir, trained = finished
    state = kd.from_workdir.get_state(workdir, optimizer=True)
    jax.tree.map(np.testing.assert_array_equal, state, trained)


def test_earlier_checkpoint(finished):
    assert int(kd.from_workdir.get_state(finished[0], step=4).step) == 4
    with pytest.raises(FileNotFoundError, match="step 5"):
        kd.from_workdir.get_state(finished[0], step=5)


def test_older_form_of_the_element_spec_is_read(finished, run):
    old = {name: {"shape": list(a.shape), "dtype": str(a.dtype)} for name, a in
           make_arrays().items()}  # fmt: skip
    (run / "element_spec.json").write_text(json.dumps(old))
    spec = kd.from_workdir.get_element_spec(run)
    assert spec["x"] == kd.data.ArraySpec((64, 4), "float32")
    trainer = kd.from_workdir.get_trainer(run)
    state = kd.from_workdir.get_state(run)
    np.testing.assert_array_equal(
        predict(trainer, state)["y"], predict(trainer, finished[1])["y"]
    )


def test_data_of_the_run_need_not_exist_for_its_state(run):
    config = json.loads((run / "config.json").read_text())
    config["train_ds"] = {"__qualname__": "a_package_that_is_gone:Data"}
    (run / "config.json").write_text(json.dumps(config))
    assert int(kd.from_workdir.get_state(run).step) == 10
    with pytest.raises(
        ImportError, match=r"(?s)config\.json: .*a_package_that_is_gone"
    ):
        kd.from_workdir.get_trainer(run)


def test_moved_folder_is_used_where_it_is(run):
    assert kd.from_workdir.get_trainer(run).workdir == kd.from_workdir.locate(run)
    assert kd.from_workdir.get_trainer(str(run)).checkpointer.latest_step == 10


def test_config_can_be_changed_and_resolved(run):
    cfg = kd.from_workdir.get_cfg(run)
    cfg.num_train_steps = 12
    cfg.workdir = str(run)
    state, _ = konfig.resolve(cfg).train()
    assert int(state.step) == 12


def test_lazy_config_imports_nothing_and_an_eager_one_complains(run):
    config = json.loads((run / "config.json").read_text())
    config["model"]["__qualname__"] = "a_package_that_is_gone:Model"
    (run / "config.json").write_text(json.dumps(config))
    assert kd.from_workdir.get_cfg(run).seed == 0
    with pytest.raises(ValueError, match=r"config\.json: .*model.*a_package_that"):
        kd.from_workdir.get_cfg(run, lazy=False)


def test_what_cannot_be_built_is_traced_to_the_saved_config(run):
    cfg = json.loads((run / "config.json").read_text())
    cfg["model"]["__qualname__"] = "a_package_that_is_not_there:Model"
    (run / "config.json").write_text(json.dumps(cfg))
    with pytest.raises(ModuleNotFoundError, match=r"set by .*config\.json") as info:
        kd.from_workdir.get_trainer(run)
    assert "created at" not in str(info.value)


def test_parts_are_resolved_alone(finished):
    workdir, _ = finished
    assert kd.from_workdir.get_resolved(workdir, "model").x == "batch.x"
    assert kd.from_workdir.get_resolved(workdir, "train_losses.l2").preds == "preds.y"
    assert kd.from_workdir.get_resolved(workdir, "nope", None) is None
    assert isinstance(kd.from_workdir.get_resolved(workdir), kd.train.Trainer)
    with pytest.raises(KeyError) as raised:
        kd.from_workdir.get_resolved(workdir, "nope")
    text = str(raised.value)  # a sentence, not the repr of one
    assert text.startswith(f"{workdir}/config.json: there is no 'nope'. It has")


def test_only_allowed_packages_are_touched(finished):
    workdir, _ = finished
    for read in (kd.from_workdir.get_trainer, kd.from_workdir.get_state):
        with pytest.raises(konfig.NotAllowedError, match=r"tests\.train\.toy"):
            read(workdir, allow=["kauldron", "optax"])
        read(workdir, allow=["kauldron", "optax", "tests", "tests.train.toy:make_ds"])


def test_folder_that_is_no_run(tmp_path):
    for read in (
        kd.from_workdir.get_cfg,
        kd.from_workdir.get_trainer,
        kd.from_workdir.get_state,
        kd.from_workdir.locate,
    ):
        with pytest.raises(FileNotFoundError, match=r"not the folder of a run"):
            read(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no element_spec\.json"):
        kd.from_workdir.get_element_spec(tmp_path)


def test_broken_files_are_named(run):
    (run / "element_spec.json").write_text("{")
    with pytest.raises(ValueError, match=r"element_spec\.json: "):
        kd.from_workdir.get_element_spec(run)
    (run / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json: "):
        kd.from_workdir.get_cfg(run)


def test_config_of_something_else_is_refused(run):
    (run / "config.json").write_text(
        json.dumps({"__qualname__": "builtins:dict", "workdir": ""})
    )
    with pytest.raises(TypeError, match=r"config\.json: it describes a dict"):
        kd.from_workdir.get_trainer(run)


def test_default_folder_is_used_if_none_is_given(finished, tmp_path):
    workdir, _ = finished
    assert kd.from_workdir.locate(None, default=workdir) == workdir
    assert kd.from_workdir.locate(workdir, default=tmp_path) == workdir


def test_nothing_is_written(run):
    def content():
        return sorted((str(p), p.stat().st_mtime_ns) for p in run.rglob("*"))

    before = content()
    kd.from_workdir.get_trainer(run)
    kd.from_workdir.get_state(run, optimizer=True)
    assert content() == before


@pytest.mark.parametrize(
    "name", ["get_cfg", "get_resolved", "get_element_spec", "get_trainer", "get_state"]
)
def test_unknown_ids_fail_with_advice(name, tmp_path, monkeypatch):
    monkeypatch.setenv("KAULDRON_HOME", str(tmp_path))
    with pytest.raises(LookupError, match=r"aux\.workdir.*no experiment 123 in"):
        getattr(kd.from_xid, name)(123, wid=1)
