"""What all pipelines share: seed, batch size, equality, copies, specs."""

import dataclasses
import pickle
import types

import jax
import numpy as np
import pytest

from kauldron import kd, konfig
from kauldron.immutabledict import ImmutableDict


def make_ds(**kwargs):
    return kd.data.py.Arrays({"x": np.arange(8)}, **{"shuffle": True} | kwargs)


def trainer(seed):
    return types.SimpleNamespace(seed=seed)


# ----------------------------------------------------------------------------
# Seed
# ----------------------------------------------------------------------------


def test_the_seed_comes_from_the_trainer_unless_it_is_set():
    assert make_ds().update_from_root_cfg(trainer(42)).seed == 42
    assert make_ds(seed=7).update_from_root_cfg(trainer(42)).seed == 7


def test_an_inherited_seed_follows_the_trainer_and_a_set_one_stays():
    inherited = make_ds().update_from_root_cfg(trainer(42))
    assert inherited.update_from_root_cfg(trainer(1)).seed == 1
    replaced = dataclasses.replace(inherited, seed=100)
    assert replaced.update_from_root_cfg(trainer(1)).seed == 100


def test_without_a_trainer_the_seed_is_zero_and_logged_once(caplog):
    caplog.set_level("INFO", logger="kauldron")
    ds = make_ds(batch_size=8, num_epochs=1)
    (batch,) = ds
    list(ds)
    (expected,) = make_ds(seed=0, batch_size=8, num_epochs=1)
    np.testing.assert_array_equal(batch["x"], expected["x"])
    assert caplog.text.count("its seed is 0") == 1
    assert ds.update_from_root_cfg(trainer(3)).seed == 3


@pytest.mark.parametrize("seed", ["1", 1.5, True, np.zeros(2, np.uint32)])
def test_a_seed_that_is_no_integer_is_refused(seed):
    with pytest.raises(TypeError, match=r"seed"):
        make_ds(seed=seed)


def test_a_key_is_no_seed():
    with pytest.raises(TypeError, match="seed"):
        make_ds(seed=jax.random.PRNGKey(0))


# ----------------------------------------------------------------------------
# Batch size
# ----------------------------------------------------------------------------


def test_a_negative_batch_size_is_refused():
    with pytest.raises(ValueError, match=r"batch_size=-1"):
        make_ds(batch_size=-1)


def test_the_batch_size_of_a_process():
    assert make_ds(batch_size=4).host_batch_size == 4
    assert make_ds().host_batch_size is None


@pytest.mark.parametrize(
    "field, value",
    [("num_workers", -1), ("prefetch_batches", -1), ("per_worker_buffer_size", 0)],
)
def test_numbers_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=f"{field}={value}"):
        make_ds(**{field: value})


# ----------------------------------------------------------------------------
# Equality, hash, copies
# ----------------------------------------------------------------------------


def test_pipelines_are_equal_by_value_and_sources_by_identity():
    records = [{"x": np.zeros(2)}]
    same = [
        kd.data.py.DataSource(records, shuffle=True, batch_size=2) for _ in range(2)
    ]
    assert same[0] == same[1]
    assert hash(same[0]) == hash(same[1])
    other_records = kd.data.py.DataSource(list(records), shuffle=True, batch_size=2)
    assert same[0] != other_records
    assert same[0] != dataclasses.replace(same[0], batch_size=3)
    assert same[0] != "text"


def test_pipelines_with_equal_transforms_are_equal():
    data = {"x": np.zeros(2)}
    pair = [
        kd.data.py.Arrays(
            data, shuffle=True, transforms=[kd.data.Cast(key="x", dtype="int32")]
        )
        for _ in range(2)
    ]
    assert pair[0] == pair[1]
    assert hash(pair[0]) == hash(pair[1])
    assert len(set(pair)) == 1


def test_copies_do_not_carry_caches():
    calls = []

    def load():
        calls.append(1)
        return {"x": np.arange(4)}

    ds = kd.data.py.Arrays(load, shuffle=False, batch_size=2, num_epochs=1)
    list(ds)
    assert set(ds.__getstate__()) == {f.name for f in dataclasses.fields(ds)}
    list(dataclasses.replace(ds, batch_size=4))
    assert calls == [1, 1]


def test_pipelines_can_be_pickled():
    ds = make_ds(
        batch_size=4, num_epochs=1, transforms=[kd.data.Cast(key="x", dtype=int)]
    )
    batches = [b["x"].tolist() for b in ds]
    again = pickle.loads(pickle.dumps(ds))
    assert [b["x"].tolist() for b in again] == batches
    operation = pickle.loads(pickle.dumps(ds.take(1).prefetch(2)))
    assert [b["x"].tolist() for b in operation] == batches[:1]


def test_a_pipeline_survives_being_exported_as_a_config():
    ds = kd.data.py.Npz("data.npz", shuffle=True, batch_size=4, seed=3)
    again = konfig.resolve(konfig.ConfigDict(konfig.export(ds)))
    assert again == ds


def test_configs_name_pipelines_through_kd():
    cfg = konfig.ConfigDict(
        {
            "__qualname__": "kauldron.kd:data.py.DataSource",
            "0": [{"x": 1}, {"x": 2}],
            "shuffle": False,
            "num_epochs": 1,
            "batch_size": 2,
            "transforms": [
                {
                    "__qualname__": "kauldron.kd:data.ValueRange",
                    "key": "x",
                    "vrange": (0, 1),
                    "in_vrange": (0, 2),
                },
                {"__qualname__": "kauldron.kd:data.py.SliceDataset", "0": 2},
            ],
        }
    )
    (batch,) = konfig.resolve(cfg)
    assert batch["x"].tolist() == [0.5, 1.0]


# ----------------------------------------------------------------------------
# Specs
# ----------------------------------------------------------------------------


def test_array_specs_are_equal_to_what_has_the_same_shape_and_dtype():
    spec = kd.data.ArraySpec((2, 3), "float32")
    assert spec == np.zeros((2, 3), np.float32)
    assert spec == jax.ShapeDtypeStruct((2, 3), "float32")
    assert spec != kd.data.ArraySpec((2, 4), "float32")
    assert spec != kd.data.ArraySpec((2, 3), "float64")
    assert spec != "text"
    assert hash(spec) == hash(kd.data.ArraySpec([2, 3], np.float32))
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_array_specs_of_texts_are_objects_and_small_floats_have_names():
    assert kd.data.ArraySpec((2,), "<U7") == kd.data.ArraySpec((2,), "S3")
    assert kd.data.ArraySpec((2,), "bfloat16").dtype.itemsize == 2
    assert repr(kd.data.ArraySpec((None, 2), "bfloat16")) == (
        "ArraySpec(shape=(None, 2), dtype='bfloat16')"
    )


def test_the_spec_of_a_pipeline_is_that_of_its_first_batch():
    ds = kd.data.py.Arrays(
        {
            "x": np.zeros((9, 2, 3), np.uint8),
            "s": np.array(["a"] * 9),
            "n": {"y": np.ones(9)},
        },
        shuffle=True,
        batch_size=4,
        transforms=[kd.data.ValueRange(key="x", vrange=(0, 1))],
    )
    assert ds.element_spec == kd.data.specs.specs_of(next(iter(ds)))
    assert ds.element_spec["s"].dtype == object


def test_the_spec_data_set_yields_one_batch_of_zeros():
    spec = {
        "x": kd.data.ArraySpec((2, 3), "float32"),
        "s": kd.data.ArraySpec((2,), object),
        "n": kd.data.ArraySpec((None,), "int32"),
    }
    ds = kd.data.ElementSpecDataset(spec=ImmutableDict(spec))
    (batch,) = ds
    assert len(ds) == 1
    assert ds.element_spec == spec
    assert batch["x"].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert batch["s"].tolist() == ["", ""]
    assert batch["n"].shape == (1,)
    assert ds == kd.data.ElementSpecDataset(dict(spec))
    with pytest.raises(ValueError, match="batch dimension into the spec"):
        kd.data.ElementSpecDataset(spec, batch_size=2)
