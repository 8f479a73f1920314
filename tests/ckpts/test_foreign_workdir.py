"""A whole workdir that another program wrote: read, evaluated, and trained on."""

import json
import shutil
from typing import Any

import flax.struct
import jax
import orbax.checkpoint as ocp
import pytest

from kauldron import kd, konfig
from kauldron.train.checkpoint_state import CheckpointState
from kauldron.utils.chrono import Chrono
from tests.ckpts.states import assert_equal
from tests.evals.experiments import make_cfg, standalone, steps

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


@pytest.fixture
def workdir(tmp_path):
    """The files of another program, with the formats of its parts."""
    cfg = make_cfg(tmp_path, evals={"e": standalone()})
    (tmp_path / "config.json").write_text(cfg.to_json())
    spec = [["x", _array_spec((16, 4))], ["y", _array_spec((16, 2))]]
    (tmp_path / "element_spec.json").write_text(
        json.dumps({"__qualname__": "builtins:dict", "0": spec})
    )
    (tmp_path / "train_complete.txt").touch()
    (tmp_path / "checkpoints" / "_SNAPSHOTS-1700000000000000000").mkdir(parents=True)
    return tmp_path


def _state(workdir):
    """The state that is stored there."""
    state = kd.from_workdir.get_trainer(workdir).init_state()
    changed = jax.tree.map(lambda leaf: leaf + 1, (state.params, state.opt_state))
    return state.replace(
        step=state.step + STEP, params=changed[0], opt_state=changed[1]
    )


def _save(workdir, *, timer=TIMER, position=None):
    fields = {n: getattr(_state(workdir), n) for n in TheirState.__dataclass_fields__}
    manager = ocp.CheckpointManager(
        workdir / "checkpoints",
        options=ocp.CheckpointManagerOptions(step_prefix="ckpt"),
        item_names=("default", "timer", "ds_iter"),
        item_handlers={
            "default": ocp.StandardCheckpointHandler(),
            "timer": ocp.JsonCheckpointHandler(),
            "ds_iter": ocp.JsonCheckpointHandler(),
        },
    )
    with manager:
        args = ocp.args.Composite(
            default=ocp.args.StandardSave(TheirState(**fields)),
            timer=ocp.args.JsonSave(timer),
            ds_iter=ocp.args.JsonSave(position or {}),
        )
        manager.save(STEP, args=args)


def test_trainer_and_state_are_read(workdir):
    _save(workdir)
    state = kd.from_workdir.get_state(workdir, optimizer=True)
    assert_equal(state, _state(workdir))
    spec = kd.from_workdir.get_element_spec(workdir)
    assert spec["x"] == kd.data.ArraySpec((16, 4), "float32")


def test_it_is_evaluated(workdir):
    _save(workdir)
    kd.from_workdir.get_trainer(workdir).continuous_eval("e")
    assert steps(workdir, "e") == [STEP]


def test_another_run_starts_from_it(workdir, tmp_path_factory):
    _save(workdir)
    loader = kd.ckpts.SimpleCheckpointLoader(workdir=workdir, load_opt_state=True)
    other = tmp_path_factory.mktemp("other")
    trainer = konfig.resolve(make_cfg(other)).replace(init_transform=loader)
    assert_equal(trainer.init_state().params, _state(workdir).params)
    assert_equal(trainer.init_state().opt_state, _state(workdir).opt_state)


@pytest.mark.parametrize(
    "timer", [TIMER, {"training_time_hours": 2.0}], ids=["newer", "older"]
)
def test_training_goes_on_and_says_that_the_data_begins_anew(workdir, timer, caplog):
    _save(workdir, timer=timer, position={"what": "only they understand"})
    state, _ = kd.from_workdir.get_trainer(workdir).train()
    assert int(state.step) == 10
    # Four updates more than what was stored.
    assert int(state.opt_state[0].count) == 1 + 4
    assert "ckpt_6 has no ds_iter that this run can read" in caplog.text
    assert sorted(p.name for p in (workdir / "checkpoints").iterdir()) == [
        "_SNAPSHOTS-1700000000000000000",
        "ckpt_10",
        "ckpt_6",
        "ckpt_8",
    ]
    key = "perf_stats/total_training_time_hours"
    lines = (workdir / "train" / "scalars.jsonl").read_text().splitlines()
    hours = [json.loads(line)["values"].get(key) for line in lines]
    assert next(h for h in hours if h is not None) == pytest.approx(2.0, abs=0.05)


def test_position_beyond_the_data_names_the_way_out(tmp_path):
    trainer = konfig.resolve(make_cfg(tmp_path, num_train_steps=4))
    trainer.train()
    (path,) = (tmp_path / "checkpoints/ckpt_4/ds_iter").glob("process_*.json")
    path.write_text(json.dumps({"next_index": -3}))
    item = CheckpointState(
        trainer.state_specs, Chrono(name="train"), iter(trainer.train_ds)
    )
    with pytest.raises(IndexError, match=r"ds_iter \(delete .*ckpt_4/ds_iter to go on"):
        trainer.checkpointer.restore(item, step=4)
    shutil.rmtree(path.parent)
    restored = trainer.checkpointer.restore(item, step=4)
    assert int(restored.train_state.step) == 4
