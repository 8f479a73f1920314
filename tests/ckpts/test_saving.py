"""When a checkpointer saves, and what `save` promises."""

import copy
import datetime
import logging
import pickle
import shutil
import stat

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd
from tests.ckpts.states import (
    assert_equal,
    full,
    make_checkpointer,
    make_state,
    ones,
    random_array,
    save_steps,
    without_permission,
    zeros,
)


def test_save_is_true_for_a_new_step_and_false_for_an_existing_one(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    assert checkpointer.save(make_state(1), step=1) is True
    assert checkpointer.save(make_state(2), step=1) is False
    assert checkpointer.save(make_state(2), step=1, force=True) is False
    assert_equal(checkpointer.restore(make_state()), make_state(1))


def test_explicit_save_needs_not_be_due(tmp_path):
    checkpointer = make_checkpointer(tmp_path, save_interval_steps=10)
    save_steps(checkpointer, [10])
    checkpointer.save(make_state(7), step=7)
    assert not checkpointer.should_save(10)
    checkpointer.wait_until_finished()
    assert checkpointer.all_steps == [7, 10]
    assert not checkpointer.should_save(10)


def test_should_save_at_multiples_newer_than_the_newest(tmp_path):
    checkpointer = make_checkpointer(tmp_path, save_interval_steps=4)
    save_steps(checkpointer, [4])
    due = [step for step in range(13) if checkpointer.should_save(step)]
    assert due == [8, 12]


def test_save_on_steps_come_besides(tmp_path):
    checkpointer = make_checkpointer(
        tmp_path, save_interval_steps=4, save_on_steps=[5, 6]
    )
    save_steps(checkpointer, [4])
    assert [s for s in range(9) if checkpointer.should_save(s)] == [5, 6, 8]


def test_while_there_is_no_checkpoint_every_step_qualifies(tmp_path):
    checkpointer = make_checkpointer(tmp_path, save_interval_steps=4)
    assert all(checkpointer.should_save(step) for step in (0, 1, 3, 3, 1))


def test_step_zero_is_never_saved_if_so_asked(tmp_path):
    checkpointer = make_checkpointer(
        tmp_path, save_interval_steps=4, never_save_step_zero=True
    )
    assert [s for s in range(9) if checkpointer.should_save(s)] == [4, 8]
    assert checkpointer.save(make_state(), step=0, force=True) is False
    assert checkpointer.maybe_save(make_state(), step=0, force=True) is False
    assert not tmp_path.joinpath("checkpoints").exists()


def test_maybe_save_saves_if_due_or_forced(tmp_path):
    checkpointer = make_checkpointer(tmp_path, save_interval_steps=4)
    assert checkpointer.maybe_save(make_state(0), step=0) is True
    assert checkpointer.maybe_save(make_state(1), step=1) is False
    assert checkpointer.maybe_save(make_state(2), step=2, force=True) is True
    assert checkpointer.maybe_save(make_state(2), step=2, force=True) is False
    checkpointer.close()
    assert checkpointer.all_steps == [0, 2]


def test_save_under_way_counts_for_should_save_but_is_not_there_yet(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    large = {"w": random_array(4_000_000)}
    state = kd.train.TrainState(step=full((), 1), params=large)
    checkpointer.save(state, step=1)
    assert not checkpointer.should_save(1)
    assert checkpointer.should_save(2)
    assert checkpointer.latest_step is None
    checkpointer.reload()
    assert not checkpointer.should_save(1)
    checkpointer.wait_until_finished()
    assert checkpointer.latest_step == 1


def test_buffers_may_be_overwritten_as_soon_as_save_returns(tmp_path):
    checkpointer = make_checkpointer(tmp_path)

    @jax.jit
    def values():
        return jnp.arange(2_000_000, dtype=jnp.float32)

    replace = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)
    on_host = np.ones(1000, np.float32)
    params = {"device": values(), "host": on_host}
    checkpointer.save(kd.train.TrainState(step=0, params=params), step=0)
    replace(params["device"]).block_until_ready()
    on_host[:] = -1
    stored = checkpointer.restore(kd.ckpts.items.StandardCheckpointItem())
    np.testing.assert_array_equal(stored["params"]["device"], np.arange(2_000_000))
    np.testing.assert_array_equal(stored["params"]["host"], 1)


def test_save_and_restore_where_transfers_are_forbidden(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    state, target = make_state(3), make_state()
    with jax.transfer_guard("disallow"):
        checkpointer.save(state, step=3)
        restored = checkpointer.restore(target)
    assert_equal(restored, state)


def test_custom_metadata_is_given_back(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    checkpointer.save(make_state(), step=0, custom_metadata={"evals_pending": True})
    checkpointer.wait_until_finished()
    assert make_checkpointer(tmp_path).custom_metadata(0) == {"evals_pending": True}


def test_custom_metadata_that_is_no_json_is_refused_at_once(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    with pytest.raises(TypeError, match="not JSON serializable"):
        checkpointer.save(make_state(), step=0, custom_metadata={"x": object()})
    assert checkpointer.save(make_state(), step=0) is True


def test_what_is_no_item_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(
        TypeError, match=r"dict cannot be in a checkpoint.*StandardCheck"
    ):
        make_checkpointer(tmp_path).save({"a": 1}, step=0)


def test_leaf_that_is_no_number_is_named(tmp_path):
    state = kd.train.TrainState(step=1, params={"a": [ones(2), "text"]})
    checkpointer = make_checkpointer(tmp_path)
    with pytest.raises(ValueError, match=r"params\.a\[1\] has the type str, and"):
        checkpointer.save(state, step=1)
    assert checkpointer.all_steps == []


def test_folders_have_the_asked_permissions(tmp_path):
    checkpointer = make_checkpointer(tmp_path, file_mode=0o750)
    save_steps(checkpointer, [0])
    for folder in (checkpointer.folder, checkpointer.folder / "ckpt_0"):
        assert stat.S_IMODE(tmp_path.joinpath(folder).stat().st_mode) == 0o750


def test_without_async_the_checkpoint_is_there_when_save_returns(tmp_path):
    checkpointer = make_checkpointer(tmp_path, enable_async=False)
    checkpointer.save(make_state(1), step=1)
    assert tmp_path.joinpath("checkpoints/ckpt_1/commit_success.txt").exists()
    assert checkpointer.latest_step == 1


def test_relative_workdir_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_steps(make_checkpointer("run"), [1])
    assert make_checkpointer(tmp_path / "run").all_steps == [1]


#
# What is kept
#


def test_newest_are_kept(tmp_path):
    checkpointer = make_checkpointer(tmp_path, max_to_keep=2)
    save_steps(checkpointer, [1, 2, 3, 4])
    assert checkpointer.all_steps == [3, 4]
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith(".deleting")]


def test_all_are_kept_if_so_asked(tmp_path):
    checkpointer = make_checkpointer(tmp_path, max_to_keep=None)
    save_steps(checkpointer, range(5))
    assert checkpointer.all_steps == [0, 1, 2, 3, 4]


def test_newest_is_kept_even_if_none_is_to_be(tmp_path):
    checkpointer = make_checkpointer(tmp_path, max_to_keep=0)
    save_steps(checkpointer, [1, 2])
    assert checkpointer.all_steps == [2]


def test_keep_period_keeps_besides(tmp_path):
    checkpointer = make_checkpointer(tmp_path, max_to_keep=1, keep_period=3)
    save_steps(checkpointer, range(8))
    assert checkpointer.all_steps == [0, 3, 6, 7]


@pytest.mark.parametrize(
    "interval, kept",
    [(datetime.timedelta(microseconds=1), [1, 2, 3]), (datetime.timedelta(1), [1, 3])],
)
def test_one_per_time_interval_is_kept_besides(tmp_path, interval, kept):
    kwargs = {"max_to_keep": 1, "keep_time_interval": interval}
    save_steps(make_checkpointer(tmp_path, **kwargs), [1, 2])
    save_steps(make_checkpointer(tmp_path, **kwargs), [3])  # reads the times of others
    assert make_checkpointer(tmp_path).all_steps == kept


def test_light_opening_leaves_times_of_earlier_starts_unread(tmp_path):
    kwargs = {
        "max_to_keep": 1,
        "keep_time_interval": datetime.timedelta(microseconds=1),
    }
    save_steps(make_checkpointer(tmp_path, **kwargs), [1, 2])
    light = make_checkpointer(tmp_path, lightweight_initialize=True, **kwargs)
    save_steps(light, [3, 4])
    assert 2 not in light.all_steps
    assert {3, 4} <= set(light.all_steps)


def test_older_ones_go_only_after_the_newer_is_there(tmp_path):
    checkpointer = make_checkpointer(tmp_path, max_to_keep=1)
    save_steps(checkpointer, [1])
    with pytest.raises(ValueError, match="zero size"):
        bad = kd.train.TrainState(step=2, params={"w": zeros((0, 3))})
        checkpointer.save(bad, step=2)
    assert checkpointer.all_steps == [1]


def test_deleting_a_step(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    save_steps(checkpointer, [1, 2])
    checkpointer.delete(2)
    assert checkpointer.all_steps == [1]
    assert checkpointer.should_save(2)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of step 2.*Steps: 1"):
        checkpointer.delete(2)


def test_deletion_that_stops_half_way_leaves_nothing_to_read(tmp_path, monkeypatch):
    checkpointer = make_checkpointer(tmp_path)
    save_steps(checkpointer, [1, 2])
    folder_type = type(checkpointer.folder)

    def killed(path, missing_ok=False):
        raise KeyboardInterrupt

    monkeypatch.setattr(folder_type, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpointer.delete(2)
    monkeypatch.undo()
    assert make_checkpointer(tmp_path).all_steps == [1]
    assert (tmp_path / "checkpoints/ckpt_2.deleting/default/_METADATA").exists()
    save_steps(make_checkpointer(tmp_path), [3])
    assert {p.name for p in (tmp_path / "checkpoints").iterdir()} == {
        "ckpt_1",
        "ckpt_3",
    }


#
# As a value
#


def test_equal_options_are_equal_and_hash_alike(tmp_path):
    def make():
        return make_checkpointer(
            tmp_path,
            save_on_steps=[1, 2],
            preservation_policy=kd.contrib.ckpts.LatestN(2),
        )

    a, b = make(), make()
    save_steps(a, [1])
    assert a == b and hash(a) == hash(b)
    assert a != make_checkpointer(tmp_path)
    assert make_checkpointer(str(tmp_path)) == make_checkpointer(tmp_path)


def test_copies_share_options_but_not_saves_under_way(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    checkpointer.save(make_state(1), step=1)
    for other in (
        copy.deepcopy(checkpointer),
        pickle.loads(pickle.dumps(checkpointer)),
    ):
        assert other == checkpointer
        other.close()
    checkpointer.close()
    assert checkpointer.all_steps == [1]


def test_context_manager_waits_and_closing_twice_is_fine(tmp_path):
    with make_checkpointer(tmp_path) as checkpointer:
        checkpointer.save(make_state(1), step=1)
    assert tmp_path.joinpath("checkpoints/ckpt_1").exists()
    checkpointer.close()
    checkpointer.close()


def test_closed_checkpointer_begins_anew(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    save_steps(checkpointer, [5])
    checkpointer.close()
    shutil.rmtree(tmp_path / "checkpoints")  # to start the run from the beginning
    assert checkpointer.should_save(0)
    save_steps(checkpointer, [0])
    assert checkpointer.all_steps == [0]


def test_construction_touches_nothing(tmp_path):
    make_checkpointer(tmp_path / "typo").close()
    assert not (tmp_path / "typo").exists()


def test_questions_about_a_missing_workdir_create_nothing(tmp_path):
    checkpointer = make_checkpointer(tmp_path / "typo")
    assert checkpointer.latest_step is None
    assert checkpointer.all_steps == []
    assert checkpointer.should_save(0)
    assert list(checkpointer.iter_new_checkpoints(timeout=0)) == []
    state = make_state()
    assert checkpointer.restore(state, noop_if_missing=True) is state
    with pytest.raises(FileNotFoundError):
        checkpointer.item_metadata()
    checkpointer.reload()
    checkpointer.wait_until_finished()
    checkpointer.close()
    assert list(tmp_path.iterdir()) == []


def test_reader_never_writes(tmp_path):
    reader = make_checkpointer(tmp_path, create=False)
    assert not reader.should_save(0)
    with pytest.raises(ValueError, match="reader"):
        reader.save(make_state(), step=0)
    with pytest.raises(ValueError, match="reader"):
        reader.delete(0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (
            {"save_interval_steps": 0},
            "save_interval_steps must be an integer of at least 1, got 0",
        ),
        (
            {"save_interval_steps": None},
            "save_interval_steps must be an integer of at least 1, got N",
        ),
        ({"best_mode": "most"}, "best_mode must be 'max' or 'min', got 'most'"),
        ({"max_to_keep": -1}, "max_to_keep must be an integer of at least 0, got -1"),
        ({"keep_period": 0}, "keep_period must be an integer of at least 1, got 0"),
        ({"on_save_error": "ignore"}, "on_save_error must be 'raise' or 'warn'"),
        ({"best_metric_path": "my_eval..acc"}, "Invalid path"),
    ],
)
def test_options_that_cannot_be_are_refused_at_construction(tmp_path, kwargs, message):
    with pytest.raises(ValueError, match=message):
        make_checkpointer(tmp_path, **kwargs)


def test_missing_workdir_says_what_to_set():
    checkpointer = kd.ckpts.Checkpointer(save_interval_steps=1)
    with pytest.raises(ValueError, match="set `workdir"):
        checkpointer.latest_step
    with pytest.raises(ValueError, match="set `workdir"):
        checkpointer.save(make_state(), step=0)


def test_negative_step_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least 0, got -1"):
        make_checkpointer(tmp_path).save(make_state(), step=-1)


#
# What counts as a checkpoint
#


def test_other_folders_are_no_checkpoints(tmp_path, caplog):
    checkpointer = make_checkpointer(tmp_path)
    save_steps(checkpointer, [1])
    root = tmp_path / "checkpoints"
    for name in ("ckpt_5", "foo_77", "ckpt_8.deleting", "ckpt_09", "ckpt_x", "88"):
        (root / name / "default").mkdir(parents=True)
    (root / "ckpt_5" / "default").rmdir()  # a deletion that was interrupted
    (root / "ckpt_6").write_text("a file")
    with caplog.at_level(logging.WARNING, "kauldron"):
        assert checkpointer.all_steps == [1]
        assert checkpointer.latest_step == 1
    assert caplog.text.count("ckpt_5 is not a complete checkpoint") == 1


def test_what_is_in_the_way_of_a_step_is_put_aside(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    save_steps(checkpointer, [1])
    (tmp_path / "checkpoints" / "ckpt_2").mkdir()
    save_steps(checkpointer, [2])
    assert checkpointer.all_steps == [1, 2]


def test_folder_that_cannot_be_listed_is_an_error_and_not_an_empty_one():
    with without_permission(0o111) as (workdir, applied):
        checkpointer = make_checkpointer(workdir)
        save_steps(checkpointer, [1])
        with applied(), pytest.raises(PermissionError, match="checkpoints"):
            checkpointer.restore(make_state(), noop_if_missing=True)


#
# Saving nothing
#


def test_noop_checkpointer_gives_back_what_it_is_given(tmp_path):
    checkpointer = kd.ckpts.NoopCheckpointer()
    state = make_state()
    with checkpointer:
        assert checkpointer.restore(state) is state
        assert checkpointer.save(state, step=0) is False
        assert checkpointer.maybe_save(state, step=0) is False
        assert not checkpointer.should_save(0) and not checkpointer.is_due(0)
        assert checkpointer.all_steps == [] and checkpointer.latest_step is None
        assert list(checkpointer.iter_new_checkpoints()) == []
    with pytest.raises(ValueError, match="cannot be forced"):
        checkpointer.maybe_save(state, step=0, force=True)
    with pytest.raises(ValueError, match="needs the state"):
        checkpointer.restore(None)
