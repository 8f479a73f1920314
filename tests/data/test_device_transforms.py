"""The last transforms of a pipeline, applied by a compiled function: the same batches."""

import dataclasses

import jax
import numpy as np
import pytest

from kauldron import kd
from kauldron.data.device_records import DeviceTransforms

WITH_OPTIMIZATIONS = True  # devices compute as for users

TO_UNIT = kd.data.ValueRange(key="image", vrange=(-1, 1))
FLIP = kd.data.py.RandomFlipLeftRight(key="image")
ONE_HOT = kd.data.py.OneHot(key="label", num_classes=10)


def make_records(size=50):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (size, 4, 4, 3), np.uint8)
    return [{"image": image, "label": n % 10} for n, image in enumerate(images)]


def make_ds(*transforms, records=None, **kwargs):
    kwargs = {"shuffle": True, "seed": 2, "batch_size": 8, "num_epochs": 1} | kwargs
    kwargs = {"device_transforms": True, "transforms": transforms} | kwargs
    return kd.data.py.DataSource(records or make_records(), **kwargs)


def moved(ds):
    """The classes of the transforms that run on the device."""
    last = DeviceTransforms.of(ds)
    return [type(e.transform).__name__ for e in last.entries] if last else []


def assert_same(batch, expected):
    assert jax.tree.structure(batch) == jax.tree.structure(expected)
    for name, column in expected.items():
        assert batch[name].shape == column.shape
        is_half = column.dtype.itemsize == 2
        rtol = 1e-2 if is_half else 1e-6
        np.testing.assert_allclose(
            np.float32(batch[name]), np.float32(column), rtol=rtol, atol=1e-6
        )


def assert_same_batches(ds, is_sent=lambda batch: batch["image"].dtype == np.uint8):
    last = DeviceTransforms.of(ds)
    apply = jax.jit(last.apply)
    whole, parts = iter(ds), iter(ds)
    last.leave_out(parts)
    count = 0
    with parts, whole:
        for batch, expected in zip(parts, whole, strict=True):
            assert is_sent(batch)
            assert_same(apply(batch), expected)
            assert parts.get_state() == whole.get_state()
            count += 1
    assert count


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"num_workers": 1},
        {"batch_drop_remainder": "pad"},
        {"batch_drop_remainder": "pad", "batch_mask_key": "is_real"},
        {"batch_drop_remainder": "keep"},
        {"read_options": type("Options", (), {"num_threads": 3})},
    ],
    ids=str,
)
def test_batches_are_those_of_the_pipeline(kwargs):
    assert_same_batches(make_ds(FLIP, TO_UNIT, ONE_HOT, **kwargs))


class EvenLabels(kd.data.FilterTransform):
    def filter(self, element):
        return element["label"] % 2 == 0


def test_batches_of_records_that_pass_a_filter_are_the_same():
    assert_same_batches(make_ds(EvenLabels(), TO_UNIT, batch_drop_remainder="pad"))


def test_batches_of_a_mixture_are_the_same():
    parts = [make_ds(FLIP), make_ds(FLIP, seed=3)]
    mix = kd.data.py.Mix(
        parts, transforms=[TO_UNIT], batch_size=8, seed=1, device_transforms=True
    )
    mix = dataclasses.replace(mix, num_epochs=1)
    assert_same_batches(mix)


def test_batches_of_an_in_memory_pipeline_are_the_same():
    images = np.stack([record["image"] for record in make_records()])
    assert_same_batches(
        kd.data.InMemoryPipeline(
            loader=lambda: {"image": images},
            shuffle=True,
            num_epochs=2,
            transforms=[TO_UNIT],
            batch_size=8,
            seed=0,
            device_transforms=True,
        )
    )


def test_an_iterator_that_was_used_goes_on_without_the_transforms():
    ds = make_ds(FLIP, TO_UNIT)
    expected = list(ds)
    last, ds_iter = DeviceTransforms.of(ds), iter(ds)
    assert_same(next(ds_iter), expected[0])
    last.leave_out(ds_iter)
    state = ds_iter.get_state()
    assert_same(jax.jit(last.apply)(next(ds_iter)), expected[1])
    ds_iter.set_state(state)
    assert_same(jax.jit(last.apply)(next(ds_iter)), expected[1])


def test_the_pipeline_itself_looks_as_before():
    ds = make_ds(FLIP, TO_UNIT)
    other = dataclasses.replace(ds, device_transforms=False)
    DeviceTransforms.of(ds).leave_out(iter(ds))
    assert ds.element_spec == other.element_spec
    assert_same(next(iter(ds)), next(iter(other)))
    assert_same(ds.first(), other.first())
    assert_same(ds[1], other[1])


#
# Which transforms
#


class Doubled(kd.data.MapTransform):
    """A user's own; larger after it."""

    traceable = True

    def map(self, element):
        return {**element, "image": element["image"].astype(np.float32) * 2}

    map_batch = map


class OnHost(kd.data.MapTransform):
    def map(self, element):
        return element


def ragged():
    return [{"image": np.zeros((n + 1, 2, 3), np.uint8), "label": n} for n in range(9)]


def name_of(part):
    """A name that is the same in every process."""
    return part if isinstance(part, str) else type(part).__name__


@pytest.mark.parametrize(
    ("transforms", "expected"),
    [
        ([TO_UNIT], ["ValueRange"]),
        ([TO_UNIT, FLIP], []),
        ([TO_UNIT, OnHost()], []),
        ([lambda record: record, TO_UNIT], ["ValueRange"]),
        ([Doubled()], ["Doubled"]),
        ([ONE_HOT], ["OneHot"]),
        ([kd.data.Cast(key="label", dtype="int32")], []),
        (
            [TO_UNIT, kd.data.Cast(key="image", dtype="bfloat16")],
            ["ValueRange", "Cast"],
        ),
        ([TO_UNIT, kd.data.Elements(keep=["image"])], ["ValueRange", "Elements"]),
        ([kd.data.Elements(keep=["image"]), TO_UNIT], ["ValueRange"]),
        (
            [TO_UNIT, kd.data.Rearrange(key="label", pattern="-> 1")],
            ["ValueRange", "Rearrange"],
        ),
        # Smaller after it than before it.
        ([kd.data.CenterCrop(key="image", shape=(1, 1, 3)), TO_UNIT], ["ValueRange"]),
        # 64-bit numbers are 32-bit ones on the device.
        ([TO_UNIT, kd.data.Cast(key="label", dtype="float32")], []),
        ([TO_UNIT, kd.data.Cast(key={"label": "y"}, dtype="float32")], []),
        ([TO_UNIT, kd.data.Cast(key="label", dtype="int8")], ["ValueRange", "Cast"]),
        # Elsewhere, images may have another shape before it.
        ([kd.data.Resize(key="image", size=(32, 32))], []),
        ([TO_UNIT, kd.data.Elements(keep=["label"])], []),
    ],
    ids=lambda parts: " ".join(map(name_of, parts)),
)
def test_transforms_that_make_batches_larger_are_split_off(transforms, expected):
    ds = make_ds(*transforms)
    assert moved(ds) == expected
    if expected:
        assert_same_batches(ds, is_sent=lambda batch: True)


def test_fields_that_only_the_host_can_hold_stay_there():
    records = [{**record, "name": "x"} for record in make_records()]
    drop = kd.data.Elements(drop=["name"])
    assert moved(make_ds(TO_UNIT, drop, records=records)) == []
    assert moved(make_ds(drop, TO_UNIT, records=records)) == ["ValueRange"]


def test_images_of_different_shapes_are_resized_on_the_host():
    resize = kd.data.Resize(key="image", size=(2, 2), method="nearest")
    ds = make_ds(resize, TO_UNIT, records=ragged())
    assert moved(ds) == ["ValueRange"]
    assert_same_batches(ds)


@pytest.mark.parametrize("slices", [[], [kd.data.py.SliceDataset(8)]], ids=str)
def test_files_that_a_crop_reads_stay_on_the_host(tmp_path, slices):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "a").mkdir()
    for n, record in enumerate(make_records(8)):
        image.fromarray(record["image"]).save(tmp_path / "a" / f"{n}.png")
    ds = kd.data.py.ImageFolder(
        str(tmp_path),
        shuffle=False,
        batch_size=4,
        num_epochs=1,
        device_transforms=True,
        transforms=[*slices, kd.data.Elements(keep=["image", "label"]), TO_UNIT],
    )
    assert moved(ds) == ["ValueRange"]
    assert_same_batches(ds)


def test_a_label_that_is_too_large_is_not_lost():
    encode = jax.jit(kd.data.py.OneHot(key="y", num_classes=3).map_batch)
    batch = encode({"y": np.array([0, 2, 3, -1])})["y"]
    assert np.isnan(batch).all(axis=-1).tolist() == [False, False, True, False]


#
# When
#


def test_it_is_for_accelerators_unless_asked_for():
    assert jax.default_backend() == "cpu"
    assert moved(make_ds(TO_UNIT, device_transforms="auto")) == []
    assert moved(make_ds(TO_UNIT, device_transforms=False)) == []
    assert moved(make_ds(TO_UNIT, device_transforms=True)) == ["ValueRange"]
    with pytest.raises(ValueError, match=r"device_transforms='yes'.*'auto'"):
        make_ds(TO_UNIT, device_transforms="yes")


def test_it_is_not_for_operations_single_records_and_own_iterators():
    class Own(kd.data.py.DataSource):
        def __iter__(self):
            return iter([])

    ds = make_ds(TO_UNIT)
    own = Own(make_records(), shuffle=False, transforms=[TO_UNIT], batch_size=2)
    own = dataclasses.replace(own, device_transforms=True)
    assert moved(ds.take(3)) == moved(ds.map(lambda batch: batch)) == []
    assert moved(make_ds(TO_UNIT, batch_size=None)) == moved(own) == []


def test_what_moves_is_told():
    text = str(DeviceTransforms.of(make_ds(FLIP, TO_UNIT)))
    assert "transforms[1] ValueRange" in text
    assert "MiB per batch are sent instead of" in text
