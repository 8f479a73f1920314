"""Pipelines on top of `tf.data`."""

import dataclasses
import json

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="needs the extra kauldron[tf]")

import tensorflow as tf

from kauldron import kd
from kauldron.data.engine import batches
from kauldron.data.engine.batches import Share


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Range(kd.data.tf.TFDataPipeline):
    """Records `{"x": i}` of this process, in order."""

    size: int = 10
    num_epochs: int | None = 1
    _supports_symbolic_checkpoint = True

    def ds_for_current_process(self, rng):
        share = batches.current_share()
        ds = tf.data.Dataset.range(share.index, self.size, share.count)
        return ds.map(lambda i: {"x": i}).repeat(self.num_epochs)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ShuffledRange(kd.data.tf.WithShuffleBuffer):
    size: int = 20

    def ds_for_current_process(self, rng):
        return tf.data.Dataset.range(self.size).map(lambda i: {"x": i})


def values(ds, key="x"):
    return [batch[key].tolist() for batch in ds]


@pytest.fixture
def process_of():
    """Count as one of several processes."""

    def become(index, count):
        batches.inherit_share(Share(index=index, count=count))

    yield become
    batches.inherit_share(None)


# ----------------------------------------------------------------------------
# Batches
# ----------------------------------------------------------------------------


def test_batches_are_numpy_and_the_remainder_is_dropped():
    ds = Range(batch_size=4)
    assert values(ds) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert all(isinstance(batch["x"], np.ndarray) for batch in ds)
    assert len(ds) == 2


def test_remainder_may_be_kept():
    ds = Range(batch_size=4, batch_drop_remainder=False)
    assert values(ds)[-1] == [8, 9]
    assert len(ds) == 3


def test_without_batch_size_records_come_alone():
    ds = Range()
    assert values(ds) == list(range(10))
    assert ds.element_spec == {"x": kd.data.ArraySpec((), "int64")}


def test_spec_comes_from_the_graph():
    assert Range(batch_size=4).element_spec == {"x": kd.data.ArraySpec((4,), "int64")}
    open_end = Range(batch_size=4, batch_drop_remainder=False)
    assert open_end.element_spec == {"x": kd.data.ArraySpec((None,), "int64")}


def test_endless_and_filtered_data_have_no_length():
    with pytest.raises(TypeError, match="no end"):
        len(Range(num_epochs=None))

    class Even(kd.data.FilterTransform):
        def filter(self, element):
            return element["x"] % 2 == 0

    ds = Range(transforms=[Even()], batch_size=2)
    assert values(ds) == [[0, 2], [4, 6]]
    with pytest.raises(TypeError, match="unknown"):
        len(ds)


def test_batch_size_is_shared_by_the_processes(process_of):
    parts = []
    for index in range(2):
        process_of(index, 2)
        parts.append(values(Range(batch_size=4)))
    assert parts == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]


def test_users_options_win():
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    used = Range(tf_data_options=options)._root_ds.options()
    assert used.threading.private_threadpool_size == 3
    assert used.threading.max_intra_op_parallelism == 1


def test_pipelines_work_with_the_chained_operations():
    batches = list(Range(batch_size=2).map(lambda b: b["x"].sum()).take(2))
    assert [int(b) for b in batches] == [1, 5]
    batch = next(iter(Range(batch_size=2).device_put()))
    assert batch["x"].tolist() == [0, 1]


# ----------------------------------------------------------------------------
# Transforms
# ----------------------------------------------------------------------------


class Draw:
    """Adds the seed it was given."""

    def random_map(self, features, seed):
        return {**features, "seed": seed}


def test_neutral_transforms_functions_and_dicts_of_transforms():
    ds = Range(
        batch_size=5,
        transforms={
            "range": kd.data.ValueRange(key="x", vrange=(0, 1), in_vrange=(0, 10)),
            "fn": lambda features: {"y": features["x"] * 2},
        },
    )
    np.testing.assert_allclose(next(iter(ds))["y"], [0, 0.2, 0.4, 0.6, 0.8], rtol=1e-6)


def test_records_need_not_be_dicts():
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
    class Pairs(kd.data.tf.TFDataPipeline):
        def ds_for_current_process(self, rng):
            return tf.data.Dataset.range(3).map(lambda i: (i, i + 1))

    ds = Pairs(transforms=[lambda pair: (pair[0] * 10, pair[1])])
    assert [(int(a), int(b)) for a, b in ds] == [(0, 1), (10, 2), (20, 3)]


def test_random_seeds_are_repeatable_and_differ_by_position_epoch_and_pipeline_seed():
    def seeds(**arguments):
        ds = Range(transforms=[Draw()], num_epochs=2, **arguments)
        return [tuple(record["seed"].tolist()) for record in ds]

    first = seeds(seed=1)
    assert first == seeds(seed=1)
    assert len(set(first)) == 20
    assert not set(first) & set(seeds(seed=2))


def test_two_random_transforms_of_one_pipeline_draw_differently():
    class DrawMore(Draw):
        def random_map(self, features, seed):
            return {**features, "other": seed}

    record = next(iter(Range(transforms=[Draw(), DrawMore()])))
    assert record["seed"].tolist() != record["other"].tolist()


def test_processes_draw_differently(process_of):
    drawn = []
    for index in range(2):
        process_of(index, 2)
        ds = Range(transforms=[Draw()])
        drawn += [tuple(record["seed"].tolist()) for record in ds]
    process_of(0, 1)
    alone = [tuple(record["seed"].tolist()) for record in Range(transforms=[Draw()])]
    assert sorted(drawn) == sorted(alone)
    assert len(set(drawn)) == 10


def test_seed_belongs_to_the_record_also_after_a_filter():
    class Odd(kd.data.FilterTransform):
        def filter(self, element):
            return element["x"] % 2 == 1

    everything = {
        int(r["x"]): r["seed"].tolist() for r in Range(transforms=[_Same(), Draw()])
    }
    odd = {int(r["x"]): r["seed"].tolist() for r in Range(transforms=[Odd(), Draw()])}
    assert odd == {x: seed for x, seed in everything.items() if x % 2}


class _Same(kd.data.MapTransform):
    def map(self, element):
        return element


def test_random_transforms_of_kd_data_tf():
    flip = kd.data.tf.RandomFlipLeftRight(key="x")
    ds = Range(
        transforms=[lambda f: {"x": tf.reshape(f["x"] + [0, 1], [1, 2, 1])}, flip]
    )
    assert {tuple(r["x"].ravel() - r["x"].min()) for r in ds} == {(0, 1), (1, 0)}


@pytest.mark.parametrize(
    ("error", "words", "transform"),
    [
        (TypeError, "forget the parentheses", kd.data.tf.RandomFlipLeftRight),
        (TypeError, "not a transform", 3),
        (
            ValueError,
            r"kd\.data\.tf\.RandomCrop",
            kd.data.py.RandomCrop(key="x", shape=(1,)),
        ),
        (ValueError, "kd.data.py", kd.data.py.SliceDataset(3)),
    ],
)
def test_entries_that_cannot_work_are_found_at_construction(error, words, transform):
    with pytest.raises(error, match=words):
        Range(transforms=[kd.data.Elements(), transform])


def test_transforms_of_a_wrong_type():
    with pytest.raises(TypeError, match="list or a dict"):
        Range(transforms=3)


def test_failing_transform_is_named():
    ds = Range(transforms=[kd.data.Elements(), kd.data.Cast(key="y", dtype="int32")])
    with pytest.raises(KeyError, match="missing keys") as error:
        iter(ds)
    assert any("transforms[1] Cast" in note for note in error.value.__notes__)


# ----------------------------------------------------------------------------
# Shuffling with a buffer
# ----------------------------------------------------------------------------


def test_shuffle_needs_a_buffer_size():
    with pytest.raises(ValueError, match="shuffle_buffer_size"):
        ShuffledRange()


def test_bad_number_of_epochs():
    with pytest.raises(ValueError, match="num_epochs"):
        ShuffledRange(shuffle=False, num_epochs=0)


def test_each_epoch_has_every_record_once_in_another_order():
    ds = ShuffledRange(shuffle_buffer_size=50, num_epochs=2, cache=True)
    stream = values(ds)
    assert sorted(stream[:20]) == sorted(stream[20:]) == list(range(20))
    assert stream[:20] != stream[20:] and stream[:20] != list(range(20))


def test_same_object_shuffles_anew_and_an_equal_object_starts_over():
    ds = ShuffledRange(shuffle_buffer_size=50, num_epochs=1)
    first, second = values(ds), values(ds)
    again = dataclasses.replace(ds)
    assert first != second
    assert [values(again), values(again)] == [first, second]


def test_order_depends_on_seed_and_process(process_of):
    def order(seed):
        return values(ShuffledRange(shuffle_buffer_size=50, num_epochs=1, seed=seed))

    first = order(1)
    assert first == order(1) != order(2)
    process_of(1, 2)
    assert order(1) != first


# ----------------------------------------------------------------------------
# Mixtures
# ----------------------------------------------------------------------------


def test_sampling_draws_by_weight_and_gives_everything():
    ds = kd.data.tf.SampleFromDatasets(
        [Range(), Range(transforms=[lambda f: {"x": f["x"] + 100}])], weights=[3, 1]
    )
    stream = values(ds)
    assert sorted(stream) == [*range(10), *range(100, 110)]
    assert sum(x < 100 for x in stream[:8]) > 4


def test_sampling_may_end_with_the_first_that_ends():
    ds = kd.data.tf.SampleFromDatasets(
        [Range(num_epochs=None), Range()], stop_on_empty_dataset=True, batch_size=2
    )
    stream = [x for batch in values(ds) for x in batch]
    assert len(stream) < 200


def test_parts_of_a_mixture_draw_differently():
    ds = kd.data.tf.ZipDatasets(
        {"a": Range(transforms=[Draw()]), "b": Range(transforms=[Draw()])}
    )
    for record in ds:
        assert record["a"]["x"] == record["b"]["x"]
        assert record["a"]["seed"].tolist() != record["b"]["seed"].tolist()


def test_zip_ends_with_the_shortest():
    ds = kd.data.tf.ZipDatasets({"a": Range(size=5), "b": Range(size=3)}, batch_size=3)
    (batch,) = list(ds)
    assert batch["b"]["x"].tolist() == [0, 1, 2]
    assert len(ds) == 1


def test_part_with_a_batch_size_batches_itself():
    ds = kd.data.tf.ZipDatasets({"a": Range(batch_size=4)}, batch_size=2)
    assert next(iter(ds))["a"]["x"].shape == (2, 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: kd.data.tf.SampleFromDatasets([]),
        lambda: kd.data.tf.SampleFromDatasets([3]),
        lambda: kd.data.tf.SampleFromDatasets(
            [kd.data.py.DataSource([{"x": 1}], shuffle=False)]
        ),
        lambda: kd.data.tf.SampleFromDatasets([Range()], weights=[1, 2]),
        lambda: kd.data.tf.SampleFromDatasets([Range(), Range()], weights=[1, 0]),
        lambda: kd.data.tf.SampleFromDatasets(
            [Range(), Range()], weights=[1, float("inf")]
        ),
        lambda: kd.data.tf.ZipDatasets({}),
        lambda: kd.data.tf.ZipDatasets([Range()]),
        lambda: kd.data.tf.ZipDatasets({"a": 3}),
    ],
)
def test_bad_mixtures_are_found_at_construction(make):
    with pytest.raises(ValueError):
        make()


# ----------------------------------------------------------------------------
# Going on
# ----------------------------------------------------------------------------


def test_state_brings_a_new_iterator_to_the_same_place():
    ds = Range(batch_size=3, num_epochs=2, transforms=[Draw()])
    iterator = iter(ds)
    next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    rest = [(b["x"].tolist(), b["seed"].tolist()) for b in iterator]
    other = iter(dataclasses.replace(ds))
    other.set_state(state)
    assert [(b["x"].tolist(), b["seed"].tolist()) for b in other] == rest
    assert len(rest) == 5


def test_shuffle_buffer_is_part_of_a_forced_checkpoint():
    ds = ShuffledRange(shuffle_buffer_size=8, num_epochs=2, checkpoint=True)
    iterator = iter(ds)
    for _ in range(7):
        next(iterator)
    state = iterator.get_state()
    rest = values(iterator)
    other = iter(dataclasses.replace(ds))
    other.set_state(state)
    assert values(other) == rest


def test_what_is_not_checkpointed_by_default():
    for ds in (
        ShuffledRange(shuffle_buffer_size=8),
        Range(checkpoint=False),
        kd.data.tf.ZipDatasets(
            {"a": Range(), "b": ShuffledRange(shuffle_buffer_size=8)}
        ),
    ):
        assert isinstance(iter(ds), kd.data.iters.NonCheckpointableIterator)
    mixture = kd.data.tf.ZipDatasets({"a": Range(), "b": Range()})
    for ds in (Range(), mixture):
        assert isinstance(iter(ds), kd.data.iters.TFDataIterator)


def test_orbax_handler_writes_one_folder_per_process(tmp_path):
    from kauldron.data.checkpointing import TFDataArg, TFDataHandler

    iterator = iter(Range(batch_size=2))
    next(iterator)
    TFDataHandler().save(tmp_path, iterator.__kd_ocp_save_args__())
    assert [p.name for p in tmp_path.iterdir()] == ["process_0-of-1"]
    files = sorted(p.name for p in (tmp_path / "process_0-of-1").iterdir())
    assert files and all(name.startswith("tfdata") for name in files)
    other = iter(Range(batch_size=2))
    value = TFDataHandler().restore(tmp_path, other.__kd_ocp_restore_args__())
    other = other.__kd_ocp_restore_post__(value)
    assert next(other)["x"].tolist() == next(iterator)["x"].tolist() == [2, 3]
    assert isinstance(other.__kd_ocp_handlers__(), TFDataHandler)
    assert isinstance(other.__kd_ocp_restore_args__(), TFDataArg)


def test_checkpointer_saves_and_restores_the_position(tmp_path):
    def make_checkpointer():
        return kd.ckpts.Checkpointer(workdir=tmp_path, save_interval_steps=1)

    iterator = iter(Range(batch_size=2))
    next(iterator)
    checkpointer = make_checkpointer()
    checkpointer.save(iterator, step=1)
    checkpointer.wait_until_finished()
    other = make_checkpointer().restore(iter(Range(batch_size=2)))
    assert next(other)["x"].tolist() == next(iterator)["x"].tolist() == [2, 3]


def test_restoring_where_nothing_was_saved(tmp_path):
    from kauldron.data.checkpointing import TFDataHandler

    iterator = iter(Range())
    with pytest.raises(ValueError, match="No position of a"):
        TFDataHandler().restore(tmp_path, iterator.__kd_ocp_restore_args__())


def test_closed_iterator():
    iterator = iter(Range())
    iterator.close()
    iterator.close()
    with pytest.raises(ValueError, match="closed"):
        next(iterator)


def test_pipelines_pickle_without_their_data_set():
    import pickle

    ds = kd.data.tf.ZipDatasets({"a": Range(batch_size=2)})
    list(ds)
    assert pickle.loads(pickle.dumps(ds)) == ds


def test_batch_size_0_gives_single_records_unless_the_parts_are_batched():
    def mix(*sizes):
        parts = [Range(batch_size=size) for size in sizes]
        return kd.data.tf.SampleFromDatasets(parts, batch_size=0)

    assert Range(batch_size=0).gives_single_records
    assert mix(None, 0).gives_single_records
    assert not mix(2, 2).gives_single_records
    assert not kd.data.tf.ZipDatasets(
        {"a": Range(batch_size=2)}, batch_size=0
    ).gives_single_records


@pytest.mark.parametrize("consumed", [0, 3])
def test_what_prefetch_read_ahead_is_not_lost_on_restoring(consumed):
    ds = Range(batch_size=2, size=20)
    iterator = iter(ds.prefetch(4))
    for _ in range(consumed):
        next(iterator)
    again = iter(ds.prefetch(4))
    again.set_state(iterator.get_state())
    assert values(again) == [[i, i + 1] for i in range(2 * consumed, 20, 2)]
    iterator.close()
