import json
import types

import jax
import jax.numpy as jnp
import pytest

from kauldron import kd, konfig, kontext

SPEC = {
    "image": kd.data.ArraySpec((4, 2), "float64"),
    "label": kd.data.ArraySpec((4,), "int64"),
    "text": kd.data.ArraySpec((4,), "<U3"),
    "none": None,
}


@pytest.mark.parametrize(
    "shape, expected", [((None, None, 3), (17, 1, 3)), ((2, None), (2, 1)), ((), ())]
)
def test_unknown_sizes_get_a_value(shape, expected):
    array = kd.data.utils.array_spec_to_jnp_empty(kd.data.ArraySpec(shape, "float64"))
    assert array.shape == expected
    assert array.dtype == jnp.float32


def test_64_bits_become_32():
    spec = kd.data.ArraySpec((2,), "int64")
    assert kd.data.utils.array_spec_to_jnp_empty(spec).dtype == jnp.int32


def test_the_global_spec_counts_all_processes(as_process):
    as_process(0, 3)
    spec = {name: SPEC[name] for name in ("image", "text", "none")}
    sharded = kd.data.utils.get_global_elem_spec(spec, kd.sharding.FIRST_DIM)
    assert sharded["image"].shape == (12, 2)
    assert sharded["text"].shape == (12,)
    assert kd.data.utils.get_global_elem_spec(spec) == sharded
    assert kd.data.utils.get_global_elem_spec(spec, kd.sharding.REPLICATED) == spec


def test_a_mock_batch_has_the_spec_and_leaves_texts_out():
    batch = kd.data.utils.mock_batch_from_elem_spec(SPEC, kd.sharding.FIRST_DIM)
    assert batch["image"].shape == (4, 2)
    assert batch["image"].sharding == kd.sharding.FIRST_DIM
    assert batch["label"].dtype == jnp.int32
    assert batch["text"] == SPEC["text"]
    assert batch["none"] is None


def test_a_mock_batch_can_be_abstract():
    spec = {"image": SPEC["image"]}
    batch = jax.eval_shape(lambda: kd.data.utils.mock_batch_from_elem_spec(spec))
    assert batch["image"].shape == (4, 2)


class Keyed:
    image: kontext.Key = "batch.pixels"

    def __call__(self, image):
        return image


def test_models_with_keys_get_what_they_name():
    batch = {"pixels": 1, "label": 2}
    context = types.SimpleNamespace(batch=batch, step=5)
    assert kd.data.utils.get_model_inputs(Keyed(), context) == ((), {"image": 1})
    assert kd.data.utils.get_model_inputs_from_batch(Keyed(), batch) == (
        (),
        {"image": 1},
    )


def test_models_without_keys_get_the_batch():
    assert kd.data.utils.get_model_inputs_from_batch(len, {"x": 1}) == (({"x": 1},), {})


def test_specs_go_through_json():
    content = json.loads(json.dumps(kd.data.utils.spec_to_json(SPEC)))
    assert content["0"][2][1]["dtype"] == "object"
    assert kd.data.utils.spec_from_json(content) == SPEC
    assert konfig.resolve(konfig.ConfigDict(content)) == SPEC


def test_specs_of_older_runs_can_be_read():
    by_name = {
        "__qualname__": "builtins:dict",
        "0": [
            [
                "image",
                {
                    "__qualname__": "etils.enp.array_spec:ArraySpec",
                    "shape": {"__qualname__": "builtins.tuple", "0": [4, 2]},
                    "dtype": "float64",
                },
            ]
        ],
    }
    bare = {"image": {"shape": [4, 2], "dtype": "float64"}}
    for content in (by_name, bare):
        assert kd.data.utils.spec_from_json(content) == {"image": SPEC["image"]}


def test_reading_a_spec_imports_nothing():
    with pytest.raises(ValueError, match=r"os\.system"):
        kd.data.utils.spec_from_json({"__qualname__": "os:system", "0": "true"})
