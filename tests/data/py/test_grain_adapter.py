"""Pipelines as grain data sets, and pipelines that users build with grain."""

import dataclasses
import functools

import grain
import numpy as np
import pytest

from kauldron import kd
from kauldron.data.py import grain_adapter


class AddRandom(kd.data.RandomMapTransform):
    def random_map(self, element, rng):
        return {**element, "r": element.get("r", 0) + int(rng.integers(0, 10**6))}


class Same(kd.data.MapTransform):
    def map(self, element):
        return element


def part(start, count, **kwargs):
    records = [{"x": start + i} for i in range(count)]
    return kd.data.py.DataSource(records, **{"shuffle": True} | kwargs)


def assert_is_grain(ds, theirs=None):
    """Our engine gives what grain gives, bit by bit.

    Where there are many records, some are compared: to shuffle few, grain takes longest.
    """
    theirs = theirs or grain_adapter.dataset_of(ds)
    assert isinstance(theirs, grain.MapDataset)
    assert len(ds) == ds.num_epochs * len(theirs)
    places = np.random.default_rng(0).permutation(len(ds))[:40].tolist()
    places += [0, len(ds) - 1]
    assert [ds[i] for i in places] == [theirs[i] for i in places]


def mixed_by_grain(ds, mix, rng=None):
    """The pipeline that grain alone makes of the parts."""
    rng = rng or kd.random.PRNGKey(ds.seed).fold_in("kmix")
    parts = [
        mixed_by_grain(part, mix, rng.fold_in(number))
        if hasattr(part, "datasets")
        else part.ds_with_transforms(rng.fold_in(number))
        for number, part in enumerate(ds.datasets)
    ]
    mixed = mix(parts)
    if ds.shuffle:
        mixed = mixed.shuffle(seed=rng.fold_in("shuffle").as_seed())
    for transform in ds.transforms:
        is_random = isinstance(transform, kd.data.RandomMapTransform)
        mixed = mixed.random_map(transform) if is_random else mixed.map(transform)
    return mixed


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("shard_by_process", [True, False])
def test_a_source_gives_the_records_and_random_numbers_of_grain(
    shuffle, shard_by_process
):
    assert_is_grain(
        part(
            0,
            1700,
            shuffle=shuffle,
            shard_by_process=shard_by_process,
            seed=5,
            num_epochs=3,
            transforms=[Same(), AddRandom(), Same(), AddRandom()],
        )
    )


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("weights", [None, [1, 2.5]])
def test_a_mixture_gives_the_records_and_random_numbers_of_grain(shuffle, weights):
    children = [
        part(0, 900, transforms=[AddRandom()]),
        part(
            1000,
            600,
            shuffle=False,
            shard_by_process=False,
            transforms=[AddRandom(), Same()],
        ),
    ]
    mix = kd.data.py.Mix(
        children,
        weights=weights,
        shuffle=shuffle,
        seed=7,
        num_epochs=2,
        transforms=[AddRandom(), Same(), AddRandom()],
    )
    by_weight = functools.partial(grain.MapDataset.mix, weights=weights)
    assert_is_grain(mix, mixed_by_grain(mix, by_weight))
    assert_is_grain(mix)
    inner = dataclasses.replace(mix, seed=children[0].seed, num_epochs=None)
    outer = kd.data.py.Mix(
        [inner, part(5000, 700)],
        weights=weights,
        seed=9,
        num_epochs=2,
        transforms=[AddRandom()],
    )
    assert_is_grain(outer, mixed_by_grain(outer, by_weight))
    assert_is_grain(outer)


@pytest.mark.parametrize("shuffle", [True, False])
def test_concatenated_and_zipped_records_are_those_of_grain(shuffle):
    kwargs = {"shuffle": shuffle, "seed": 1, "num_epochs": 2}
    both = kd.data.py.Concatenate([part(0, 500), part(500, 700)], **kwargs)
    assert_is_grain(both, mixed_by_grain(both, grain.MapDataset.concatenate))
    assert_is_grain(both)
    assert_is_grain(
        kd.data.py.ZipDatasets({"a": part(0, 500), "b": part(900, 700)}, **kwargs)
    )


class WithGrain(kd.data.py.DataSource):
    """Built by the user with grain."""

    def ds_for_current_process(self, rng):
        return super().ds_for_current_process(rng).map(lambda r: {**r, "mine": 1})


def foreign(**kwargs):
    kwargs = {"seed": 3, "batch_size": 4} | kwargs
    return WithGrain([{"x": i} for i in range(12)], shuffle=True, **kwargs)


def test_a_pipeline_built_with_grain_runs_like_any_other():
    ds = foreign(num_epochs=2, transforms=[AddRandom()])
    batches = list(ds)
    assert len(ds) == 6
    assert sorted(x for b in batches[:3] for x in b["x"].tolist()) == list(range(12))
    assert batches[0]["mine"].tolist() == [1] * 4
    assert ds.element_spec["r"] == kd.data.ArraySpec((4,), "int64")
    np.testing.assert_equal(ds[1], batches[1])


def test_a_pipeline_built_with_grain_goes_on_where_it_stopped():
    ds = foreign(num_epochs=2)
    expected = [b["x"].tolist() for b in ds]
    iterator, again = iter(ds), iter(ds)
    next(iterator), next(iterator)
    state = iterator.get_state()
    again.set_state(state)
    assert state["next_index"] == 8
    assert [b["x"].tolist() for b in again] == expected[2:]


def test_each_process_of_a_pipeline_built_with_grain_has_every_other_record(as_process):
    seen = []
    for index in range(2):
        as_process(index, 2)
        ds = foreign(num_epochs=1)
        seen.append(sorted(x for b in ds for x in b["x"].tolist()))
        state = iter(ds).get_state()
    assert seen == [list(range(0, 12, 2)), list(range(1, 12, 2))]
    as_process(0, 4)
    with pytest.raises(ValueError, match=r"2 processes.*by 4"):
        iter(foreign(num_epochs=1)).set_state(state)


def test_a_mixture_with_a_part_built_with_grain_runs_through_grain():
    child = WithGrain([{"x": i} for i in range(12)], shuffle=True)
    mix = kd.data.py.Mix(
        [child, part(100, 12)],
        seed=1,
        num_epochs=1,
        batch_size=4,
        transforms=[lambda r: {"x": r["x"]}],
    )
    seen = sorted(x for b in mix for x in b["x"].tolist())
    assert seen == [*range(12), *range(100, 112)]


def test_filters_in_grain_are_noticed():
    class Filtered(kd.data.py.DataSource):
        def ds_with_transforms(self, rng):
            return super().ds_with_transforms(rng).filter(lambda r: r["x"] % 2 == 0)

    ds = Filtered(
        [{"x": i} for i in range(8)], shuffle=False, num_epochs=1, batch_size=3
    )
    assert [b["x"].tolist() for b in ds] == [[0, 2, 4]]
    with pytest.raises(TypeError, match="unknown"):
        len(ds)


def test_errors_inside_grain_say_where():
    class Failing(kd.data.py.DataSource):
        def ds_for_current_process(self, rng):
            return super().ds_for_current_process(rng).map(lambda r: 1 // r["x"])

    ds = Failing([{"x": 1}, {"x": 0}], shuffle=False, batch_size=2)
    with pytest.raises(ZeroDivisionError) as info:
        next(iter(ds))
    assert "element 1 of epoch 0 of Failing" in "".join(info.value.__notes__)


def test_building_something_else_is_refused():
    class Wrong(kd.data.py.DataSource):
        def ds_for_current_process(self, rng):
            return super().ds_for_current_process(rng).to_iter_dataset()

    with pytest.raises(TypeError, match=r"grain\.MapDataset"):
        iter(Wrong([1, 2], shuffle=False))


def test_the_parts_of_a_mixture_may_be_asked_for_grain_data_sets():
    rng = kd.random.PRNGKey(0)
    ds = part(0, 5, shuffle=False, transforms=[Same()])
    assert [r["x"] for r in ds.ds_for_current_process(rng)] == [0, 1, 2, 3, 4]
    assert len(ds.ds_with_transforms(rng)) == 5


def test_grain_sources_are_sources():
    ds = kd.data.py.DataSource(
        grain.sources.RangeDataSource(2, 12, 2),
        shuffle=False,
        num_epochs=1,
        batch_size=5,
    )
    (batch,) = ds
    assert batch.tolist() == [2, 4, 6, 8, 10]


def test_a_pipeline_may_be_nothing_but_a_grain_data_set():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(kd.data.py.PyGrainPipeline):
        count: int

        def ds_for_current_process(self, rng):
            return grain.MapDataset.range(self.count).map(lambda i: {"x": i})

    ds = Mine(
        count=6, batch_size=3, num_epochs=1, transforms=[lambda r: {"x": r["x"] + 1}]
    )
    assert [b["x"].tolist() for b in ds] == [[1, 2, 3], [4, 5, 6]]
    assert hash(ds) == hash(dataclasses.replace(ds))


def test_a_pipeline_without_data_says_what_to_override():
    class Nothing(kd.data.py.PyGrainPipeline):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing.*ds_for_current_process"):
        iter(Nothing())


@pytest.mark.parametrize("num_workers", [1])
def test_a_pipeline_built_with_grain_runs_in_workers(num_workers):
    class Local(kd.data.py.DataSource):
        def ds_for_current_process(self, rng):
            return super().ds_for_current_process(rng).map(lambda r: {"x": r["x"] + 1})

    kwargs = {"shuffle": True, "seed": 1, "num_epochs": 1, "batch_size": 3}
    expected = [b["x"].tolist() for b in Local([{"x": i} for i in range(9)], **kwargs)]
    ds = Local([{"x": i} for i in range(9)], num_workers=num_workers, **kwargs)
    assert [b["x"].tolist() for b in ds] == expected
