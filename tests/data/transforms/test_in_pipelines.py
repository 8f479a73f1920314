"""Transforms inside pipelines: order, randomness, records that do not fit."""

import dataclasses

import jax
import numpy as np
import pytest

from kauldron import kd, konfig

IMAGES = np.random.default_rng(0).integers(0, 255, (12, 10, 8, 3)).astype(np.uint8)
COLUMNS = {"image": IMAGES, "mask": IMAGES[..., :1] > 100, "label": np.arange(12)}
RECORDS = [{name: column[i] for name, column in COLUMNS.items()} for i in range(12)]

EVERYTHING = {
    "constants": kd.data.AddConstants({"source": "mine", "weight": 0.5}),
    "crop": kd.data.py.RandomCrop(key=["image", "mask"], shape=(8, 6, None)),
    "flip": kd.data.py.RandomFlipLeftRight(key=["image", "mask"]),
    "range": kd.data.ValueRange(key="image", vrange=(-1, 1)),
    "resize": kd.data.Resize(key="image", size=(5, 5)),
    "center": kd.data.CenterCrop(key="mask", shape=(4, None, None)),
    "axis": kd.data.Rearrange(key="label", pattern="... -> ... 1"),
    "gather": kd.data.Gather(key="image", axis=-1, indices=(2, 0)),
    "cast": kd.data.Cast(key="label", dtype="int32"),
    "one_hot": kd.data.py.OneHot(key={"label": "classes"}, num_classes=12),
    "rename": kd.data.Elements(rename={"mask": "segments"}, copy={"label": "id"}),
}
ARGUMENTS = {
    "shuffle": True,
    "seed": 3,
    "num_epochs": 2,
    "batch_size": 5,
    "transforms": EVERYTHING,
}


def assert_equal_streams(first, second):
    first, second = list(first), list(second)
    assert len(first) == len(second) > 0
    for a, b in zip(first, second):
        assert list(a) == list(b)
        for name in a:
            assert (a[name].dtype, a[name].shape) == (b[name].dtype, b[name].shape)
            np.testing.assert_array_equal(a[name], b[name])


def test_columns_and_single_records_give_the_same_stream():
    assert_equal_streams(
        kd.data.py.Arrays(COLUMNS, **ARGUMENTS),
        kd.data.py.DataSource(RECORDS, **ARGUMENTS),
    )


def test_same_position_same_crop_and_another_crop_in_the_next_epoch():
    crop = kd.data.py.RandomCrop(key=["x", "y"], shape=(3,))
    columns = {"x": np.arange(100)[None], "y": np.arange(100)[None]}
    ds = kd.data.py.Arrays(
        columns, shuffle=False, num_epochs=5, seed=0, transforms=[crop]
    )
    stream = [record["x"].tolist() for record in ds]
    assert stream == [record["x"].tolist() for record in ds]
    assert stream == [ds[i]["x"].tolist() for i in range(5)]
    assert len({tuple(x) for x in stream}) > 1
    assert all(record["x"].tolist() == record["y"].tolist() for record in ds)


def test_own_method_of_a_subclass_is_called_on_columns_too():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Inverted(kd.data.ValueRange):
        def map_element(self, element):
            return 1 - super().map_element(element)

    arguments = {"shuffle": False, "num_epochs": 1, "batch_size": 4}
    transforms = [Inverted(key="image", vrange=(0, 1))]
    batch = next(iter(kd.data.py.Arrays(COLUMNS, transforms=transforms, **arguments)))
    np.testing.assert_allclose(batch["image"], 1 - IMAGES[:4] / 255, atol=1e-6)


def test_source_records_stay_as_they_are_over_two_epochs():
    records = [{"x": np.zeros(2), "y": {"z": 1}} for _ in range(3)]
    ds = kd.data.py.DataSource(
        records,
        shuffle=False,
        num_epochs=2,
        batch_size=3,
        transforms=[
            kd.data.AddConstants({"c": 1}),
            kd.data.Cast(key="y.z", dtype="float32"),
            kd.data.TreeFlattenWithPath(key="y"),
            kd.data.Elements(drop=["c"], rename={"x": "w"}),
        ],
    )
    assert [sorted(batch) for batch in ds] == [["w", "y_z"]] * 2
    for record in records:
        assert sorted(record) == ["x", "y"] and record["y"] == {"z": 1}


def test_failing_transform_is_named_with_its_place_and_record():
    records = [{"x": [1, 2]}, {"x": [1, 2]}, {"x": "text"}]
    ds = kd.data.py.DataSource(
        records,
        shuffle=False,
        num_epochs=1,
        transforms=[kd.data.Elements(), kd.data.Cast(key="x", dtype="int32")],
    )
    with pytest.raises(TypeError, match="field 'x'") as error:
        list(ds)
    notes = " ".join(error.value.__notes__)
    assert "transforms[1] Cast" in notes and "record 2" in notes


def test_failing_batch_form_names_the_guilty_record():
    class Sqrt(kd.data.ElementWiseTransform):
        def map_element(self, element):
            if np.min(element) < 0:
                raise ValueError("negative")
            return np.sqrt(element)

        map_element_batch = map_element

    ds = kd.data.py.Arrays(
        {"x": np.array([1.0, 4.0, -1.0, 9.0])},
        shuffle=False,
        num_epochs=1,
        batch_size=4,
        transforms={"root": Sqrt(key="x")},
    )
    with pytest.raises(ValueError, match="negative") as error:
        list(ds)
    notes = " ".join(error.value.__notes__)
    assert "transforms['root']" in notes and "Sqrt(" in notes
    assert "record 2" in notes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: {"x": np.zeros(r["i"] + 1)}, "shape"),
        (lambda r: {"x": 1} if r["i"] else {"x": 1, "extra": 2}, "extra"),
        (lambda r: {"x": "text" if r["i"] else 1}, "x"),
        (lambda r: {"x": None if r["i"] else 1}, "x"),
    ],
)
def test_transform_that_makes_records_unequal(change, words):
    ds = kd.data.py.DataSource(
        [{"i": 0}, {"i": 1}],
        shuffle=False,
        num_epochs=1,
        batch_size=2,
        transforms=[change],
    )
    with pytest.raises(ValueError, match=words) as error:
        list(ds)
    assert "record 0" in str(error.value) and "record 1" in str(error.value)


def test_configs_of_transforms_resolve_to_equal_objects():
    with konfig.imports():
        from kauldron import kd as lazy_kd

    cfg = konfig.ConfigDict(
        {
            "range": lazy_kd.data.ValueRange(
                key="image", vrange=(0, 1), dtype="float16"
            ),
            "names": lazy_kd.data.Elements(keep=["a"], rename={"b": "c"}),
            "constants": lazy_kd.data.AddConstants({"a": {"b": [1, 2]}}),
            "crop": lazy_kd.data.py.RandomCrop(key={"a": "b"}, shape=(3, None)),
        }
    )
    resolved = konfig.resolve(konfig.ConfigDict.from_json(cfg.to_json()))
    assert resolved["range"] == kd.data.ValueRange(
        key="image", vrange=(0, 1), dtype="float16"
    )
    assert resolved["names"] == kd.data.Elements(keep=["a"], rename={"b": "c"})
    assert resolved["constants"] == kd.data.AddConstants({"a": {"b": [1, 2]}})
    assert resolved["crop"] == kd.data.py.RandomCrop(key={"a": "b"}, shape=(3, None))


def test_traced_forms_of_a_whole_chain_agree_with_the_batches():
    chain = [
        kd.data.ValueRange(key="image", vrange=(-1, 1)),
        kd.data.Resize(key="image", size=(5, 5)),
        kd.data.Rearrange(key="image", pattern="h w c -> c h w"),
        kd.data.Elements(drop=["mask"], rename={"label": "target"}),
    ]
    ds = kd.data.py.Arrays(
        COLUMNS, shuffle=False, num_epochs=1, batch_size=6, transforms=chain
    )

    @jax.jit
    def transform(batch):
        for entry in chain:
            batch = kd.data.transforms.jax_form(entry)(batch)
        return batch

    for i, batch in enumerate(ds):
        rows = slice(6 * i, 6 * i + 6)
        on_device = transform({name: column[rows] for name, column in COLUMNS.items()})
        np.testing.assert_allclose(on_device["image"], batch["image"], atol=1e-5)
        np.testing.assert_array_equal(on_device["target"], batch["target"])
