"""Iterators as items of a checkpoint."""

import dataclasses
import json

import numpy as np
import orbax.checkpoint as ocp
import pytest

from kauldron import kd
from kauldron.data import checkpointing


def make_ds(**kwargs):
    kwargs = {"shuffle": True, "seed": 1, "batch_size": 4} | kwargs
    return kd.data.py.Arrays({"x": np.arange(21)}, **kwargs)


def save(path, item):
    """What a checkpointer does with an item."""
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    handler = item.__kd_ocp_handlers__()
    registry.add("ds_iter", type(item.__kd_ocp_save_args__()), handler)
    with ocp.Checkpointer(
        ocp.CompositeCheckpointHandler(handler_registry=registry)
    ) as c:
        c.save(path, ocp.args.Composite(ds_iter=item.__kd_ocp_save_args__()))


def restore(path, item):
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    handler = item.__kd_ocp_handlers__()
    registry.add("ds_iter", type(item.__kd_ocp_restore_args__()), handler)
    with ocp.Checkpointer(
        ocp.CompositeCheckpointHandler(handler_registry=registry)
    ) as c:
        args = ocp.args.Composite(ds_iter=item.__kd_ocp_restore_args__())
        value = c.restore(path, args)["ds_iter"]
    return item.__kd_ocp_restore_post__(value)


@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds,
        lambda ds: ds.map(lambda b: b).prefetch(4).device_put(),
        lambda ds: kd.data.InMemoryPipeline(
            loader=lambda: {"x": np.arange(21)}, shuffle=True, seed=1, batch_size=4
        ),
    ],
    ids=["pipeline", "ops", "in_memory"],
)
def test_a_saved_iterator_is_restored_in_place(tmp_path, chain):
    ds = chain(make_ds())
    with iter(ds) as iterator:
        for _ in range(7):
            next(iterator)
        save(tmp_path / "ckpt", iterator)
        expected = [np.asarray(next(iterator)["x"]).tolist() for _ in range(3)]
    with iter(ds) as fresh:
        restored = restore(tmp_path / "ckpt", fresh)
        assert restored is fresh
        assert [np.asarray(next(fresh)["x"]).tolist() for _ in range(3)] == expected


def test_the_checkpoint_holds_one_json_file_per_process(tmp_path, as_process):
    as_process(1, 2)
    handler = checkpointing.PyGrainCheckpointHandler()
    iterator = iter(make_ds())
    next(iterator)
    handler.save(tmp_path, iterator.__kd_ocp_save_args__())
    (file,) = tmp_path.iterdir()
    assert file.name == "process_1-of-2.json"
    state = json.loads(file.read_text())
    assert (state["next_index"], state["global_index"]) == (2, 4)


def test_the_files_of_another_number_of_processes_will_do(tmp_path, as_process):
    handler = checkpointing.PyGrainCheckpointHandler()
    for index in range(4):
        as_process(index, 4)
        iterator = iter(make_ds())
        next(iterator), next(iterator)
        handler.save(tmp_path, iterator.__kd_ocp_save_args__())
    as_process(0, 1)
    iterator = iter(make_ds())
    iterator.__kd_ocp_restore_post__(handler.restore(tmp_path))
    assert iterator.get_state()["global_index"] == 8


def test_a_file_with_only_a_next_index_counts_per_process(tmp_path, as_process):
    (tmp_path / "process_0-of-2.json").write_text('{"next_index": 6}')
    handler = checkpointing.PyGrainCheckpointHandler()
    iterator = iter(make_ds())
    iterator.__kd_ocp_restore_post__(handler.restore(tmp_path))
    assert iterator.get_state()["global_index"] == 12


def test_a_missing_file_is_an_error_that_lists_what_is_there(tmp_path):
    (tmp_path / "other.txt").write_text("")
    with pytest.raises(ValueError, match=r"process_0-of-1\.json.*other\.txt"):
        checkpointing.PyGrainCheckpointHandler().restore(tmp_path)


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "process_0-of-1.json").write_text('{"next_ind')
    with pytest.raises(ValueError, match=r"process_0-of-1\.json"):
        checkpointing.PyGrainCheckpointHandler().restore(tmp_path)


def test_an_iterator_without_state_saves_nothing_and_says_so(tmp_path, caplog):
    ds = kd.data.ElementSpecDataset({"x": kd.data.ArraySpec((2,), "int32")})
    iterator = kd.data.iters.as_iterator(ds)
    assert isinstance(iterator, kd.data.iters.NonCheckpointableIterator)
    save(tmp_path / "ckpt", iterator)
    assert restore(tmp_path / "ckpt", iterator) is iterator
    assert "restarts from the beginning" in caplog.text
    assert next(iterator)["x"].tolist() == [0, 0]


def test_the_noop_handler_gives_back_what_it_got(tmp_path):
    handler = kd.data.iters.NoopHandler()
    handler.save(tmp_path, kd.data.iters.NoopArg())
    assert list(tmp_path.iterdir()) == []
    assert handler.restore(tmp_path, kd.data.iters.NoopArg("value")) == "value"


def test_an_iterator_knows_its_data():
    ds = make_ds(num_epochs=1)
    iterator = iter(ds)
    assert iter(iterator) is iterator
    assert len(iterator) == len(ds)
    assert iterator.element_spec == ds.element_spec
    assert iterator.source is ds


def test_what_an_iterator_wraps_is_an_iterator():
    ds = make_ds(num_epochs=1)
    expected = [batch["x"].tolist() for batch in ds]
    for chain in (ds, ds.map(dict), ds.take(5), ds.cache(), ds.prefetch(1)):
        with iter(chain) as iterator:
            assert [batch["x"].tolist() for batch in iterator.iter] == expected


def test_objects_with_a_state_are_wrapped_as_such():
    class Counting:
        def __init__(self):
            self.n = 0

        def __next__(self):
            self.n += 1
            return {"x": np.array([self.n])}

        def get_state(self):
            return {"n": self.n}

        def set_state(self, state):
            self.n = state["n"]

    class Mine(kd.data.Pipeline):
        def __iter__(self):
            return Counting()

    ds = Mine()
    iterator = kd.data.iters.as_iterator(ds)
    assert isinstance(iterator, kd.data.iters.PyGrainIterator)
    next(iterator)
    mapped = iter(ds.map(lambda batch: {"x": batch["x"] * 10}))
    mapped.set_state(iterator.get_state())
    assert next(mapped)["x"].tolist() == [20]


@pytest.mark.parametrize("new", [{}, {"num_workers": 1}, {"batch_size": 2}])
def test_iterators_go_through_the_checkpointer(tmp_path, new):
    checkpointer = kd.ckpts.Checkpointer(workdir=str(tmp_path), save_interval_steps=1)
    records = [{"x": i} for i in range(21)]
    ds = kd.data.py.DataSource(records, shuffle=True, seed=1, batch_size=4)
    with iter(ds.prefetch(4)) as iterator:
        for _ in range(5):
            next(iterator)
        checkpointer.save(iterator, step=5)
        checkpointer.wait_until_finished()
        expected = np.concatenate([next(iterator)["x"] for _ in range(2)])
    ds = dataclasses.replace(ds, **new)
    with checkpointer.restore(iter(ds.prefetch(4))) as restored:
        seen = np.concatenate([next(restored)["x"] for _ in range(8 // ds.batch_size)])
    np.testing.assert_array_equal(seen, expected)
