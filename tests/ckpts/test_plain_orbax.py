"""Checkpoints are orbax's: read with plain orbax, and written by it."""

import importlib
import json
from typing import Any, NamedTuple

import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

from kauldron import kd
from kauldron.ckpts.items import TopLevelCheckpointItem
from kauldron.train.run import chrono
from kauldron.train.state import CheckpointState
from tests import processes
from tests.ckpts.states import (
    assert_equal,
    make_checkpointer,
    make_state,
    orbax_manager,
    save_steps,
    zeros,
)


def _as_dict(state):
    return {name: getattr(state, name) for name in ("step", "params", "collections")}


@pytest.mark.parametrize("checksum", [False, True])
def test_our_checkpoints_are_read_with_plain_orbax(tmp_path, checksum):
    checkpointer = make_checkpointer(tmp_path, checksum=checksum)
    state = make_state(3)
    checkpointer.save(
        CheckpointState(state, chrono.Chrono(name="t"), _iterator()), step=3
    )
    checkpointer.close()
    folder = tmp_path / "checkpoints" / "ckpt_3"
    loaded = v1.load(folder, checkpointable_name="default")
    assert set(loaded) == {"step", "params", "collections", "opt_state"}
    assert_equal(loaded["params"], state.params)
    with ocp.StandardCheckpointer() as plain:
        assert_equal(plain.restore(folder / "default")["params"], state.params)


def test_our_folder_is_listed_by_the_manager_of_orbax(tmp_path):
    save_steps(make_checkpointer(tmp_path), [1, 2])
    (tmp_path / "checkpoints" / "ckpt_9.deleting").mkdir()
    options = ocp.CheckpointManagerOptions(step_prefix="ckpt", read_only=True)
    with ocp.CheckpointManager(tmp_path / "checkpoints", options=options) as manager:
        assert list(manager.all_steps()) == [1, 2]
        restored = manager.restore(2, args=ocp.args.StandardRestore())
        assert_equal(restored["params"], make_state(2).params)


def test_layout_on_disk(tmp_path):
    checkpointer = make_checkpointer(tmp_path, best_metric_path="e.m")
    item = CheckpointState(make_state(3), chrono.Chrono(name="train"), _iterator())
    checkpointer.save(item, step=3, metrics={"e": {"m": 1.0}})
    checkpointer.save(make_state(4), step=4, metrics={"e": {"m": 1.0}})
    checkpointer.close()
    folder = tmp_path / "checkpoints" / "ckpt_3"
    names = {path.name for path in folder.iterdir() if path.is_dir()}
    assert names == {"default", "timer", "ds_iter", "metrics"}
    timer = json.loads((folder / "timer" / "metadata").read_text())
    assert timer["name"] == "train" and "_global_total_time" in timer
    assert json.loads((folder / "metrics" / "metrics").read_text()) == {"e": {"m": 1.0}}
    metadata = json.loads((folder / "_CHECKPOINT_METADATA").read_text())
    assert set(metadata["item_handlers"]) == names
    assert metadata["commit_timestamp_nsecs"] > metadata["init_timestamp_nsecs"] > 0
    bare = tmp_path / "checkpoints" / "ckpt_4"
    assert {p.name for p in bare.iterdir() if p.is_dir()} == {"default", "metrics"}


def _write_with_the_manager(workdir, steps, **options):
    """A workdir as another program writes it with orbax's manager."""
    with orbax_manager(workdir, **options) as manager:
        for step in steps:
            manager.save(
                step,
                args=ocp.args.Composite(
                    default=ocp.args.StandardSave(_fields(make_state(step))),
                    timer=ocp.args.JsonSave(_TIMER),
                    ds_iter=ocp.args.JsonSave({}),
                ),
                metrics={"e": {"m": 1.0 / (1 + step)}},
            )


_TIMER = {
    "name": "train",
    "batch_size": 4,
    "pause_names": ["checkpoint"],
    "chrono_since_last_flush": {"train": {"num_steps": 3, "total_time": 1.5}},
    "_start_time": 12345.0,
    "_global_total_time": 77.0,
}


def _fields(state):
    return {**_as_dict(state), "opt_state": state.opt_state}


def test_workdirs_written_by_the_manager_of_orbax_are_read(tmp_path):
    _write_with_the_manager(tmp_path, [2, 5])
    (tmp_path / "checkpoints" / "_SNAPSHOTS-1700000000000000000").mkdir()
    checkpointer = make_checkpointer(tmp_path)
    assert checkpointer.all_steps == [2, 5]
    assert_equal(checkpointer.restore(make_state()), make_state(5))
    now = chrono.Chrono(name="train", batch_size=8)
    both = checkpointer.restore(CheckpointState(make_state(), now, _JsonIterator()))
    assert_equal(both.train_state, make_state(5))
    assert both.timer._global_total_time == 77.0 and both.timer.batch_size == 8


class _Two(NamedTuple("_Two", [("a", Any), ("b", Any)]), TopLevelCheckpointItem):
    DEFAULT_ITEM = "a"


def test_their_trees_are_read_under_any_name(tmp_path):
    folder = tmp_path / "checkpoints"
    options = ocp.CheckpointManagerOptions(step_prefix="ckpt")
    with ocp.CheckpointManager(folder, options=options) as manager:
        trees = {
            name: ocp.args.StandardSave(_fields(make_state(step)))
            for name, step in (("default", 2), ("b", 7))
        }
        manager.save(2, args=ocp.args.Composite(**trees))
    restored = make_checkpointer(tmp_path).restore(_Two(make_state(), make_state()))
    assert_equal(restored, _Two(make_state(2), make_state(7)))


def test_their_metrics_are_ranked(tmp_path):
    _write_with_the_manager(tmp_path, [2, 5], best_fn=lambda m: m["e"]["m"])
    checkpointer = make_checkpointer(tmp_path, best_metric_path="e.m", max_to_keep=1)
    assert checkpointer.best_step == 2
    checkpointer.save(make_state(6), step=6, metrics={"e": {"m": 0.0}})
    checkpointer.close()
    assert checkpointer.all_steps == [2, 6]


def test_checkpoint_of_older_orbax_without_marker_files_counts(tmp_path):
    _write_with_the_manager(tmp_path, [2])
    for marker in (tmp_path / "checkpoints").rglob("commit_success.txt"):
        marker.unlink()
    checkpointer = make_checkpointer(tmp_path)
    assert checkpointer.latest_step == 2
    assert_equal(checkpointer.restore(make_state()), make_state(2))


def test_partial_loading_of_their_checkpoints(tmp_path):
    _write_with_the_manager(tmp_path, [2])
    loader = kd.ckpts.SimpleCheckpointLoader(workdir=tmp_path)
    loaded = loader.transform(make_state(optimizer=False))
    assert_equal(loaded.params, make_state(2).params)


def _iterator():
    return iter(kd.data.InMemoryPipeline(loader=_records, batch_size=2))


def _records():
    return {"x": np.arange(8), "y": zeros(8)}


class _JsonIterator(kd.data.iters.NonCheckpointableIterator):
    """An iterator whose position another program stored in its own way."""

    def __init__(self):
        super().__init__(source=None, iter=iter(()))  # type: ignore[arg-type]


#
# What importing checkpoints costs, and under which names they are found
#


def test_orbax_is_loaded_only_when_something_is_saved_or_read(tmp_path):
    script = """
        import sys
        from kauldron import kd

        checkpointer = kd.ckpts.Checkpointer(workdir=sys.argv[1], save_interval_steps=1)
        kd.ckpts.PartialKauldronLoader(workdir=sys.argv[1])
        assert checkpointer.latest_step is None and checkpointer.should_save(0)
        kd.train.Trainer(workdir=sys.argv[1], checkpointer=checkpointer)
        loaded = {name.split(".")[0] for name in sys.modules}
        assert not loaded & {"orbax", "tensorstore", "tensorflow"}, loaded
    """
    processes.run_script_with_jax(script, tmp_path)


def test_older_names_of_the_packages():
    checkpoints = importlib.import_module("kauldron.checkpoints")
    assert checkpoints.Checkpointer is kd.ckpts.Checkpointer
    assert importlib.import_module("kauldron.modules").Dropout is kd.nn.Dropout
    older = importlib.import_module("kauldron.contrib.checkpoints")
    assert older.ExpStep is kd.contrib.ckpts.ExpStep
    assert kd.ckpts.PartialLoader is kd.ckpts.PartialKauldronLoader
    assert kd.ckpts.checkpointer.CHECKPOINT_FOLDER_NAME == "checkpoints"
