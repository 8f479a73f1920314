"""What may stand in `transforms=`, and how it is applied."""

import dataclasses
import json

import grain
import grain.experimental
import numpy as np
import pytest

from kauldron import kd, konfig


def make_ds(transforms, count=6, **kwargs):
    kwargs = {"shuffle": False, "num_epochs": 1, "prefetch_batches": 0} | kwargs
    records = [{"x": i} for i in range(count)]
    return kd.data.py.DataSource(records, transforms=transforms, **kwargs)


class Double(grain.transforms.Map):
    def map(self, element):
        return {"x": element["x"] * 2}


class AddNoise(grain.transforms.RandomMap):
    def random_map(self, element, rng):
        return {"x": element["x"] + int(rng.integers(100))}


class Odd(grain.transforms.Filter):
    def filter(self, element):
        return element["x"] % 2 == 1


class WithIndex(grain.transforms.MapWithIndex):
    def map_with_index(self, index, element):
        return {**element, "i": index}


@dataclasses.dataclass(frozen=True)
class Twice(grain.experimental.FlatMapTransform):
    max_fan_out: int = 3

    def flat_map(self, element):
        return [{"x": element["x"]}, {"x": -element["x"]}][: element["x"]]


def values(ds):
    return [record["x"] for record in ds]


def test_grain_maps_and_filters_are_applied():
    assert values(make_ds([Double(), Odd()])) == []
    assert values(make_ds([Odd(), Double()])) == [2, 6, 10]


def test_grain_random_maps_get_a_generator_per_position():
    ds = make_ds([AddNoise()], num_epochs=2)
    first, second = values(ds)[:6], values(ds)[6:]
    assert values(ds) == [*first, *second]
    assert first != second


def test_the_index_of_grain_runs_on_over_epochs():
    ds = make_ds([WithIndex()], count=3, num_epochs=2)
    assert [record["i"] for record in ds] == [0, 1, 2, 3, 4, 5]


def test_flat_map_gives_several_records_for_one():
    ds = make_ds([Twice()], count=4)
    assert values(ds) == [1, 2, -2, 3, -3]
    with pytest.raises(TypeError, match="unknown"):
        len(ds)


def test_flat_map_that_gives_too_many_names_the_record():
    with pytest.raises(ValueError, match="max_fan_out=1") as info:
        values(make_ds([Twice(max_fan_out=1)], count=4))
    assert "record 2 of DataSource(list)" in "".join(info.value.__notes__)


def test_grain_batch_groups_records():
    ds = make_ds([grain.transforms.Batch(2), lambda r: {"x": r["x"].sum()}], count=5)
    assert values(ds) == [1, 5, 4]
    ds = make_ds(
        [grain.transforms.Batch(2, drop_remainder=True)], count=5, batch_size=2
    )
    (batch,) = ds
    assert batch["x"].tolist() == [[0, 1], [2, 3]]


def test_grain_batch_after_a_filter_is_refused():
    with pytest.raises(ValueError, match=r"Batch.*cannot come after a filter"):
        list(make_ds([Odd(), grain.transforms.Batch(2)]))


def test_slices_select_source_records_wherever_they_stand():
    for transforms in (
        [kd.data.py.SliceDataset(3), lambda r: r],
        [lambda r: r, kd.data.py.SliceDataset(3)],
    ):
        ds = make_ds(transforms, count=100, shuffle=True, num_epochs=3)
        seen = values(ds)
        assert len(ds) == 9
        for epoch in range(3):
            assert sorted(seen[epoch * 3 : epoch * 3 + 3]) == [0, 1, 2]


@pytest.mark.parametrize(
    "args", [(4,), (2, 5), (1, None, 2), (-2, None), (None, None, -1)]
)
def test_slices_are_those_of_python(args):
    assert (
        values(make_ds([kd.data.py.SliceDataset(*args)]))
        == list(range(6))[slice(*args)]
    )


@pytest.mark.parametrize(
    "args, kwargs, expected",
    [
        ((), {"start": 2, "stop": 5}, slice(2, 5)),
        ((), {"stop": 4}, slice(4)),
        ((), {"start": 1}, slice(1, None)),
        ((1,), {"stop": 5}, slice(1, 5)),
        ((1, 5), {"step": 2}, slice(1, 5, 2)),
        ((5,), {"step": 2}, slice(0, 5, 2)),
        ((), {"step": -1}, slice(None, None, -1)),
    ],
)
def test_slices_can_be_given_by_keyword(args, kwargs, expected):
    chosen = kd.data.py.SliceDataset(*args, **kwargs)
    assert values(make_ds([chosen])) == list(range(6))[expected]


def test_slices_can_be_replaced_and_configured():
    chosen = kd.data.py.SliceDataset(start=2, stop=10)
    assert dataclasses.replace(chosen, stop=5) == kd.data.py.SliceDataset(2, 5)
    assert eval(repr(chosen), {"SliceDataset": kd.data.py.SliceDataset}) == chosen
    with konfig.imports():
        from kauldron import kd as lazy_kd
    cfg = lazy_kd.data.py.SliceDataset(start=2, stop=10)
    assert konfig.resolve(konfig.ConfigDict.from_json(cfg.to_json())) == chosen


@pytest.mark.parametrize(
    "args, kwargs",
    [((1, 2), {"stop": 3}), ((1, 2), {"start": 3}), ((1, 2, 3), {"step": 1})],
)
def test_a_slice_with_a_part_given_twice_is_refused(args, kwargs):
    with pytest.raises(TypeError, match=rf"{next(iter(kwargs))} twice"):
        kd.data.py.SliceDataset(*args, **kwargs)


def test_two_slices_follow_each_other():
    slices = [kd.data.py.SliceDataset(1, None), kd.data.py.SliceDataset(0, None, 2)]
    assert values(make_ds(slices)) == [1, 3, 5]


def test_a_slice_after_a_flat_map_slices_what_comes_out():
    ds = make_ds([Twice(max_fan_out=2), kd.data.py.SliceDataset(6)], count=4)
    assert values(ds) == [1, 2, -2]


@pytest.mark.parametrize("args", [(), (1, 2, 3, 4)])
def test_a_slice_with_a_wrong_number_of_arguments_is_refused(args):
    with pytest.raises(TypeError, match="SliceDataset takes"):
        kd.data.py.SliceDataset(*args)


def test_a_slice_of_something_else_is_refused():
    with pytest.raises(TypeError, match="stop='a'"):
        kd.data.py.SliceDataset("a")
    with pytest.raises(ValueError, match="zero"):
        kd.data.py.SliceDataset(0, 5, 0)


@pytest.mark.parametrize(
    "transforms, error, words",
    [
        ([kd.data.Cast], TypeError, ["transforms[0]", "Cast", "parentheses"]),
        ([len, 5], TypeError, ["transforms[1]", "int", "kd.data.MapTransform"]),
        ({"a": "text"}, TypeError, ["transforms['a']", "str"]),
        (5, TypeError, ["a list or a dict"]),
    ],
)
def test_what_is_no_transform_is_refused_at_construction(transforms, error, words):
    with pytest.raises(error) as info:
        make_ds(transforms)
    for word in words:
        assert word in str(info.value)


def test_a_transform_of_the_other_backend_is_refused():
    class ForTensorFlow(kd.data.MapTransform):
        __kd_data_backend__ = "tf"

        def map(self, element):
            return element

    with pytest.raises(ValueError, match=r"ForTensorFlow.*kd\.data\.py"):
        make_ds([ForTensorFlow()])


def test_the_type_of_a_transform_wins_over_its_being_callable():
    class Positive(kd.data.FilterTransform):
        def filter(self, element):
            return element["x"] > 3

    assert values(make_ds([Positive()])) == [4, 5]


def test_a_dict_of_transforms_is_applied_in_order_also_after_json():
    with konfig.imports():
        from kauldron import kd as cfg_kd

    cfg = cfg_kd.data.py.Arrays(
        {"x": [1.0, 2.0]},
        shuffle=False,
        num_epochs=1,
        transforms={
            "z_first": cfg_kd.data.ValueRange(
                key="x", vrange=(0, 10), in_vrange=(0, 1), clip_values=False
            ),
            "a_second": cfg_kd.data.Cast(key="x", dtype="int32"),
        },
    )
    cfg = konfig.ConfigDict({"ds": cfg})
    again = konfig.ConfigDict(json.loads(cfg.to_json()))
    again.ds.transforms.z_first.vrange = (0, 20)
    ds = konfig.resolve(again).ds
    assert list(ds.transforms) == ["z_first", "a_second"]
    assert [int(record["x"]) for record in ds] == [20, 40]


def test_transforms_are_frozen_and_pipelines_have_a_hash():
    listed = make_ds([kd.data.Cast(key="x", dtype="int32")])
    assert isinstance(listed.transforms, tuple)
    named = dataclasses.replace(listed, transforms={"c": listed.transforms[0]})
    assert hash(named) == hash(dataclasses.replace(named))
    with pytest.raises((TypeError, AttributeError)):
        named.transforms["d"] = None


# ----------------------------------------------------------------------------
# Errors in transforms
# ----------------------------------------------------------------------------


class MyError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Fails(kd.data.MapTransform):
    at: int

    def map(self, element):
        if element["x"] == self.at:
            raise MyError("no")
        return element


def test_an_error_in_a_transform_names_transform_and_record():
    ds = make_ds([lambda r: r, Fails(4)], shuffle=True, seed=1, batch_size=2)
    with pytest.raises(MyError) as info:
        list(ds)
    assert info.value.args == ("no",)
    note = "".join(info.value.__notes__)
    for words in (
        "transforms[1]",
        "Fails(at=4)",
        "record 4 of DataSource(list)",
        "{x: int}",
    ):
        assert words in note


def test_an_error_in_a_batch_form_names_the_one_bad_record():
    class NotFour(kd.data.MapTransform):
        def map(self, element):
            return self.map_batch(element)

        def map_batch(self, batch):
            if (np.asarray(batch["x"]) == 4).any():
                raise MyError("no")
            return batch

    ds = kd.data.py.Arrays(
        {"x": np.arange(8)},
        shuffle=False,
        num_epochs=1,
        batch_size=8,
        transforms={"check": NotFour()},
    )
    with pytest.raises(MyError) as info:
        list(ds)
    note = "".join(info.value.__notes__)
    assert "transforms['check']" in note
    assert "record 4 of Arrays" in note


def test_an_error_in_a_batch_form_alone_says_so():
    class Broken(kd.data.MapTransform):
        def map(self, element):
            return element

        def map_batch(self, batch):
            raise MyError("only here")

    ds = kd.data.py.Arrays(
        {"x": np.arange(8)}, shuffle=False, batch_size=8, transforms=[Broken()]
    )
    with pytest.raises(MyError) as info:
        next(iter(ds))
    assert "record by record it does not fail" in "".join(info.value.__notes__)


@pytest.mark.parametrize("method", ["get_batch", "__getitems__", "__getitem__"])
def test_an_error_in_a_source_names_the_record(method):
    class Source:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            if index == 3:
                raise OSError("disk")
            return {"x": index}

    if method == "get_batch":
        Source.get_batch = lambda self, idx: {
            "x": np.array([self[i]["x"] for i in idx])
        }
    if method == "__getitems__":
        Source.__getitems__ = lambda self, idx: [self[i] for i in idx]
    ds = kd.data.py.DataSource(Source(), shuffle=False, num_epochs=1, batch_size=3)
    iterator = iter(ds)
    next(iterator)
    with pytest.raises(OSError, match="disk") as info:
        next(iterator)
    assert "record 3 of DataSource(" in "".join(info.value.__notes__)


@pytest.mark.parametrize(
    "method, result, words",
    [
        ("get_batch", {"x": np.zeros(2)}, ["get_batch", "'x'", "(2,)"]),
        ("__getitems__", [{"x": 0}], ["__getitems__", "3 records", "gave 1"]),
    ],
)
def test_a_source_that_gives_the_wrong_number_of_records_is_told(method, result, words):
    class Source:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return {"x": index}

    setattr(Source, method, lambda self, indices: result)
    ds = kd.data.py.DataSource(Source(), shuffle=False, batch_size=3)
    with pytest.raises(ValueError) as info:
        next(iter(ds))
    for word in words:
        assert word in str(info.value)


def test_a_batch_form_that_loses_records_is_told():
    class Short(kd.data.MapTransform):
        def map(self, element):
            return element

        def map_batch(self, batch):
            return {"x": batch["x"][1:]}

    ds = kd.data.py.Arrays(
        {"x": np.arange(8)}, shuffle=False, batch_size=8, transforms=[Short()]
    )
    with pytest.raises(ValueError, match=r"got 8 records.*'x'.*\(7,\)") as info:
        next(iter(ds))
    assert "batch form of transforms[0]" in "".join(info.value.__notes__)
