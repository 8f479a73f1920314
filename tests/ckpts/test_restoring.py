"""What comes back from a checkpoint, and what does not fit."""

import dataclasses
import logging
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import kd
from kauldron.ckpts import items
from kauldron.train.compat import PerformanceTimer
from kauldron.train.run import chrono
from kauldron.train.state import CheckpointState
from tests.ckpts.states import (
    assert_equal,
    make_checkpointer,
    make_state,
    ones,
    random_array,
    save_steps,
    specs_of,
    zeros,
)


@pytest.fixture
def checkpointer(tmp_path):
    return make_checkpointer(tmp_path)


def test_state_comes_back_equal_and_of_its_type(checkpointer):
    save_steps(checkpointer, [1, 2])
    restored = checkpointer.restore(make_state())
    assert isinstance(restored, kd.train.TrainState)
    assert isinstance(restored.opt_state[0], optax.ScaleByAdamState)
    assert_equal(restored, make_state(2))
    assert_equal(checkpointer.restore(make_state(), step=1), make_state(1))


def test_specs_are_enough(checkpointer):
    save_steps(checkpointer, [1])
    assert_equal(checkpointer.restore(specs_of(make_state())), make_state(1))


def test_specs_without_sharding_go_to_the_first_device(checkpointer):
    save_steps(checkpointer, [1])
    specs = jax.eval_shape(make_state)
    restored = checkpointer.restore(specs)
    assert_equal(restored, make_state(1))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(restored))


def test_unknown_structure_comes_back_as_dicts_and_lists(checkpointer):
    save_steps(checkpointer, [1])
    restored = checkpointer.restore(items.StandardCheckpointItem())
    state = make_state(1)
    assert list(restored) == ["collections", "opt_state", "params", "step"]
    assert_equal(restored["params"], state.params)
    adam, empty = restored["opt_state"]
    assert set(adam) == {"count", "mu", "nu"}
    assert not empty


def test_containers_come_back_as_documented(checkpointer):
    class Pair(NamedTuple):
        left: Any
        right: Any

    params = {
        "pair": Pair(ones(2), (zeros(1), None)),
        "none": None,
        "empty_dict": {},
        "empty_list": [],
        "number": 3,
        "host": np.arange(3),
    }
    checkpointer.save(kd.train.TrainState(step=1, params=params), step=1)
    restored = checkpointer.restore(items.StandardCheckpointItem())["params"]
    assert set(restored["pair"]) == {"left", "right"}
    assert isinstance(restored["pair"]["right"], list)
    assert restored["pair"]["right"][1] is None
    assert restored["none"] is None
    assert restored["empty_dict"] == {} and restored["empty_list"] == []
    assert restored["number"] == 3 and type(restored["number"]) is int
    np.testing.assert_array_equal(restored["host"], np.arange(3))


def test_leaves_keep_their_kind(checkpointer):
    params = {
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(4), 5),
        "number": 3,
        "fraction": 0.5,
        "host": np.arange(3, dtype=np.int8),
        "scalar": np.float32(2),
        "half": ones((2,), jnp.bfloat16),
    }
    state = kd.train.TrainState(step=1, params=params)
    checkpointer.save(state, step=1)
    restored = checkpointer.restore(state, donate=False).params
    assert jax.random.key_data(restored["key"]).tolist() == [0, 3]
    assert restored["keys"].shape == (5,)
    assert restored["keys"].dtype == params["keys"].dtype
    np.testing.assert_array_equal(
        *(jax.random.key_data(keys) for keys in (restored["keys"], params["keys"]))
    )
    assert restored["number"] == 3 and type(restored["number"]) is int
    assert restored["fraction"] == 0.5
    assert type(restored["host"]) is np.ndarray and restored["host"].dtype == np.int8
    assert restored["scalar"] == 2
    assert restored["half"].dtype == jnp.bfloat16


def test_other_dtype_is_cast_to_that_of_the_state(checkpointer):
    save_steps(checkpointer, [1])
    restored = checkpointer.restore(make_state(dtype=jnp.bfloat16))
    kernel = restored.params["dense"]["kernel"]
    assert kernel.dtype == jnp.bfloat16
    expected = make_state(1).params["dense"]["kernel"].astype(jnp.bfloat16)
    np.testing.assert_array_equal(kernel, expected)


def test_field_that_is_none_is_left_alone(checkpointer):
    save_steps(checkpointer, [1])
    restored = checkpointer.restore(make_state(optimizer=False))
    assert restored.opt_state is None
    assert_equal(restored.params, make_state(1).params)


def test_fields_outside_of_the_tree_are_not_stored(checkpointer):
    @flax.struct.dataclass
    class Item(items.StandardCheckpointItem):
        value: Any
        label: str = flax.struct.field(pytree_node=False, default="")

    checkpointer.save(Item(value=ones(2), label="saved"), step=0)
    restored = checkpointer.restore(Item(value=zeros(2), label="mine"))
    np.testing.assert_array_equal(restored.value, 1)
    assert restored.label == "mine"


def test_plain_dataclass_can_be_an_item(checkpointer):
    @dataclasses.dataclass(frozen=True)
    class Item(items.StandardCheckpointItem):
        value: Any

    checkpointer.save(Item(ones(2)), step=0)
    np.testing.assert_array_equal(checkpointer.restore(Item(zeros(2))).value, 1)


def test_shapes_can_be_asked_without_reading_data(checkpointer):
    save_steps(checkpointer, [1])
    for tree in (checkpointer.item_metadata(), checkpointer.item_metadata(1)):
        assert tree["params"]["dense"]["kernel"].shape == (4, 3)
        assert tree["params"]["dense"]["kernel"].dtype == np.float32


#
# Steps
#


def test_missing_checkpoint_is_an_error_that_names_folder_and_way_out(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"checkpoints.*noop_if_missing=True"):
        checkpointer.restore(make_state())


def test_noop_if_missing_leaves_the_state_usable(checkpointer):
    state = make_state(7)
    assert checkpointer.restore(state, noop_if_missing=True) is state
    assert_equal(state, make_state(7))


def test_missing_step_lists_the_steps_there_are(checkpointer):
    save_steps(checkpointer, [1, 2])
    for noop in (False, True):
        with pytest.raises(FileNotFoundError, match=r"step 5 .*Steps: 1, 2"):
            checkpointer.restore(make_state(), step=5, noop_if_missing=noop)


def test_negative_step_other_than_the_newest_is_refused(checkpointer):
    save_steps(checkpointer, [1])
    with pytest.raises(ValueError, match="-1 for the newest, got -2"):
        checkpointer.restore(make_state(), step=-2)


#
# What does not fit
#


def test_other_shape_is_refused_with_both_shapes_and_the_state_stays(checkpointer):
    save_steps(checkpointer, [1])
    state = make_state(features=5)
    with pytest.raises(kd.ckpts.StructureMismatch) as error:
        checkpointer.restore(state)
    message = str(error.value)
    assert "params.dense.kernel: model (4, 5) vs checkpoint (4, 3)" in message
    assert "PartialKauldronLoader" in message
    assert_equal(state, make_state(features=5))


def test_weights_are_not_cut_to_integers_and_the_state_stays(checkpointer):
    checkpointer.save(make_state(1), step=1)
    state = make_state(dtype=jnp.int32)
    with pytest.raises(kd.ckpts.StructureMismatch, match="model int32 vs checkpoint f"):
        checkpointer.restore(state)
    assert not state.params["dense"]["kernel"].is_deleted()


def test_other_names_are_refused_with_all_paths_and_the_state_stays(checkpointer):
    save_steps(checkpointer, [1])
    params = {"dense": {"kernel": ones((4, 3)), "scale": ones(3)}}
    state = make_state(2).replace(params=params)
    with pytest.raises(ValueError) as error:
        checkpointer.restore(state)
    message = str(error.value)
    assert "Missing in the checkpoint:\n  params.dense.scale" in message
    assert "Only in the checkpoint:\n  params.dense.bias" in message
    assert_equal(state.params, params)


def test_long_lists_of_paths_are_cut(checkpointer):
    many = {f"w{i}": ones(1) for i in range(50)}
    checkpointer.save(kd.train.TrainState(step=0, params=many), step=0)
    with pytest.raises(ValueError, match=r"\.\.\. and 30 more"):
        checkpointer.restore(kd.train.TrainState(step=0, params={}))


def test_optimizer_state_of_another_optimizer_is_refused(checkpointer):
    save_steps(checkpointer, [1])
    state = make_state()
    state = state.replace(opt_state=optax.sgd(1.0, momentum=0.9).init(state.params))
    with pytest.raises(ValueError, match=r"opt_state\[0\]\.trace\.dense\.bias"):
        checkpointer.restore(state)


#
# Giving the memory away
#


def test_donated_state_is_freed_and_another_is_not(checkpointer):
    save_steps(checkpointer, [1])
    kept, given = make_state(), make_state()
    checkpointer.restore(kept, donate=False)
    assert_equal(kept, make_state())
    checkpointer.restore(given)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_failing_while_reading_says_that_the_state_is_consumed(checkpointer, tmp_path):
    params = {"w": random_array((100, 100))}
    checkpointer.save(kd.train.TrainState(step=1, params=params), step=1)
    checkpointer.wait_until_finished()
    files = [p for p in (tmp_path / "checkpoints").rglob("*") if p.is_file()]
    max(files, key=lambda path: path.stat().st_size).unlink()
    (tmp_path / "checkpoints/ckpt_1/checksums.json").unlink()  # else noticed before
    kept = kd.train.TrainState(step=0, params={"w": ones((100, 100))})
    with pytest.raises(Exception, match=r"Restoring .*ckpt_1 failed: "):
        checkpointer.restore(kept, step=1, donate=False)
    assert not kept.params["w"].is_deleted()
    with pytest.raises(Exception, match=r"ckpt_1 failed \(.*is consumed\): "):
        checkpointer.restore(kept, step=1)
    assert kept.params["w"].is_deleted()


#
# Several items
#


class Both(NamedTuple):
    state: Any
    timer: Any


class BothItem(Both, items.TopLevelCheckpointItem):
    DEFAULT_ITEM = "state"


def _timer(seconds):
    return chrono.Chrono(name="train", batch_size=8, _global_total_time=seconds)


def test_tuple_comes_back_as_the_same_tuple_type(checkpointer):
    checkpointer.save(BothItem(make_state(1), _timer(60.0)), step=1)
    restored = checkpointer.restore(BothItem(make_state(), _timer(0.0)))
    assert type(restored) is BothItem
    state, timer = restored
    assert_equal(state, make_state(1))
    assert timer.to_json()["_global_total_time"] == 60.0


def test_default_item_can_be_restored_alone(checkpointer):
    checkpointer.save(BothItem(make_state(1), _timer(60.0)), step=1)
    assert_equal(checkpointer.restore(make_state()), make_state(1))


def test_one_checkpointer_takes_items_of_different_kinds(checkpointer):
    checkpointer.save(BothItem(make_state(1), _timer(60.0)), step=1)
    checkpointer.save(make_state(2), step=2)
    assert_equal(checkpointer.restore(make_state()), make_state(2))
    restored = checkpointer.restore(BothItem(make_state(), _timer(0.0)), step=1)
    assert_equal(restored.state, make_state(1))


def test_bare_state_restores_into_all_of_training_with_one_warning(
    checkpointer, caplog
):
    save_steps(checkpointer, [1])
    timer, ds_iter = _timer(5.0), _timer(6.0)
    with caplog.at_level(logging.WARNING, "kauldron"):
        restored = checkpointer.restore(CheckpointState(make_state(), timer, ds_iter))
    assert_equal(restored.train_state, make_state(1))
    assert restored.timer is timer and restored.ds_iter is ds_iter
    assert [r.message for r in caplog.records if "initial value is kept" in r.message]
    assert len(caplog.records) == 1


def test_missing_train_state_is_an_error(checkpointer):
    class TimerOnly(NamedTuple):
        timer: Any

    class TimerOnlyItem(TimerOnly, items.TopLevelCheckpointItem):
        pass

    checkpointer.save(TimerOnlyItem(_timer(1.0)), step=1)
    assert (
        checkpointer.restore(TimerOnlyItem(_timer(0.0))).timer._global_total_time == 1
    )
    with pytest.raises(FileNotFoundError, match="no item 'default'; it has timer"):
        checkpointer.restore(make_state())


def test_timer_alone_keeps_names_and_batch_size_of_now(checkpointer):
    checkpointer.save(_timer(60.0), step=1)
    now = chrono.Chrono(name="other", batch_size=16)
    restored = checkpointer.restore(now)
    assert restored._global_total_time == 60.0
    assert restored.name == "other" and restored.batch_size == 16


def test_older_timer_alone(checkpointer):
    def make(hours):
        return PerformanceTimer(
            initial_step_num=0,
            initial_training_time_hours=hours,
            per_device_batch_size=1.0,
            global_batch_size=1,
        )

    checkpointer.save(make(2.0), step=1)
    restored = checkpointer.restore(make(0.0))
    assert restored.total_training_time_hours == pytest.approx(2.0, abs=0.1)


def test_iterator_without_state_is_an_empty_item(checkpointer):
    ds = kd.data.InMemoryPipeline(loader=lambda: {"x": np.arange(4)}, batch_size=2)
    iterator = kd.data.iters.NonCheckpointableIterator(source=ds, iter=iter([1, 2]))
    checkpointer.save(iterator, step=1)
    assert checkpointer.restore(iterator) is iterator
    assert next(iterator) == 1
