"""A whole workdir that another program wrote: read, evaluated, and trained on."""

import json
import shutil
from typing import Any

import flax.struct
import jax
import orbax.checkpoint as ocp
import pytest

from kauldron import kd, writers
from kauldron.train.run.chrono import Chrono
from kauldron.train.state import CheckpointState
from tests.ckpts.states import assert_equal, orbax_manager
from tests.evals.experiments import make_cfg, resolve, standalone, steps

STEP = 6
TIMER = {
    "name": "train",
    "batch_size": 16,
    "pause_names": ["checkpoint"],
    "chrono_since_last_flush": {"train": {"num_steps": 3, "total_time": 1.5}},
    "_start_time": 12345.0,
    "_global_total_time": 7200.0,
}


@flax.struct.dataclass
class TheirState:
    """Fields with the names of ours."""

    step: Any
    params: Any
    collections: Any
    opt_state: Any


def _array_spec(shape):
    return {
        "__qualname__": "etils.enp.array_spec:ArraySpec",
        "shape": {"__qualname__": "builtins.tuple", "0": list(shape)},
        "dtype": "float32",
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The files of another program, with the formats of its parts, and the state."""
    workdir = tmp_path_factory.mktemp("written")
    cfg = make_cfg(workdir, evals={"e": standalone()})
    (workdir / "config.json").write_text(cfg.to_json())
    spec = [["x", _array_spec((16, 4))], ["y", _array_spec((16, 2))]]
    (workdir / "element_spec.json").write_text(
        json.dumps({"__qualname__": "builtins:dict", "0": spec})
    )
    (workdir / "train_complete.txt").touch()
    (workdir / "checkpoints" / "_SNAPSHOTS-1700000000000000000").mkdir(parents=True)
    state = resolve(cfg).init_state()
    fields = {n: getattr(state, n) for n in TheirState.__dataclass_fields__}
    changed = jax.device_put(
        jax.tree.map(lambda leaf: leaf + leaf.dtype.type(STEP), jax.device_get(fields))
    )
    _save(workdir, TheirState(**changed))
    return workdir, state.replace(**changed)


@pytest.fixture
def workdir(written, tmp_path):
    shutil.copytree(written[0], tmp_path / "run")
    return tmp_path / "run"


def _save(workdir, state):
    with orbax_manager(workdir) as manager:
        args = ocp.args.Composite(
            default=ocp.args.StandardSave(state),
            timer=ocp.args.JsonSave(TIMER),
            ds_iter=ocp.args.JsonSave({"what": "only they understand"}),
        )
        manager.save(STEP, args=args)


def test_trainer_and_state_are_read(workdir, written):
    state = kd.from_workdir.get_state(workdir, optimizer=True)
    assert_equal(state, written[1])
    spec = kd.from_workdir.get_element_spec(workdir)
    assert spec["x"] == kd.data.ArraySpec((16, 4), "float32")


def test_it_is_evaluated(workdir):
    kd.from_workdir.get_trainer(workdir).continuous_eval("e")
    assert steps(workdir, "e") == [STEP]


def test_another_run_starts_from_it(workdir, written, tmp_path):
    loader = kd.ckpts.SimpleCheckpointLoader(workdir=workdir, load_opt_state=True)
    other = resolve(make_cfg(tmp_path / "other")).replace(init_transform=loader)
    state = other.init_state()
    assert_equal(state.params, written[1].params)
    assert_equal(state.opt_state, written[1].opt_state)


@pytest.mark.parametrize(
    "timer", [TIMER, {"training_time_hours": 2.0}], ids=["newer", "older"]
)
def test_training_goes_on_and_says_that_the_data_begins_anew(workdir, timer, caplog):
    (workdir / "checkpoints/ckpt_6/timer/metadata").write_text(json.dumps(timer))
    state, _ = kd.from_workdir.get_trainer(workdir).train()
    assert int(state.step) == 10
    assert int(state.opt_state[0].count) == STEP + 4
    assert "ckpt_6 has no ds_iter that this run can read" in caplog.text
    assert sorted(p.name for p in (workdir / "checkpoints").iterdir()) == [
        "_SNAPSHOTS-1700000000000000000",
        "ckpt_10",
        "ckpt_6",
        "ckpt_8",
    ]
    key = "perf_stats/total_training_time_hours"
    lines = writers.read_scalars(workdir / "train")
    hours = [line["values"][key] for line in lines if key in line["values"]]
    assert hours[0] == pytest.approx(2.0, abs=0.05)


def test_position_beyond_the_data_names_the_way_out(tmp_path):
    trainer = resolve(make_cfg(tmp_path, num_train_steps=4))
    trainer.train()
    (path,) = (tmp_path / "checkpoints/ckpt_4/ds_iter").glob("process_*.json")
    path.write_text(json.dumps({"next_index": -3}))
    (tmp_path / "checkpoints/ckpt_4/checksums.json").unlink()
    item = CheckpointState(
        trainer.state_specs, Chrono(name="train"), iter(trainer.train_ds)
    )
    advice = r"ds_iter \(delete .*ckpt_4/ds_iter and .*checksums.json to go on"
    with pytest.raises(IndexError, match=advice):
        trainer.checkpointer.restore(item, step=4)
    shutil.rmtree(path.parent)
    restored = trainer.checkpointer.restore(item, step=4)
    assert int(restored.train_state.step) == 4
