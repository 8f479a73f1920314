"""Weights from safetensors and msgpack files."""

import contextlib
import json
import logging
import struct

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization
from hypothesis import given
from hypothesis import strategies as st

from kauldron import kd, konfig
from kauldron.ckpts.weight_files import read_safetensors
from tests.ckpts.states import assert_equal, full, ones, zeros

_NAMES = {
    "float32": "F32",
    "float64": "F64",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "uint8": "U8",
    "bool": "BOOL",
}


def write_safetensors(path, arrays, metadata=None):
    """A file as the format's description says."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, array in arrays.items():
        content = np.asarray(array).tobytes()
        header[name] = {
            "dtype": _NAMES[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def _state(params):
    return kd.train.TrainState(step=zeros((), jnp.int32), params=params, collections={})


@pytest.fixture
def file(tmp_path):
    arrays = {
        "encoder.dense.kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "encoder.dense.bias": np.ones(3, jnp.bfloat16),
        "layers.0.w": np.full((2,), 5, np.float16),
        "head": np.zeros((), np.int64),
    }
    return write_safetensors(tmp_path / "w.safetensors", arrays, {"format": "np"})


def test_safetensors_go_to_their_places_in_the_dtype_of_the_state(file):
    state = _state({"enc": {"kernel": zeros((2, 3)), "bias": zeros(3)}})
    loader = kd.ckpts.SafetensorsLoader(
        path=file, new_to_old={"params.enc": "encoder.dense"}
    )
    params = loader.transform(state).params["enc"]
    np.testing.assert_array_equal(params["kernel"], np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(params["bias"], 1)
    assert params["bias"].dtype == jnp.float32
    assert isinstance(params["bias"], jax.Array)


def test_whole_file_is_the_parameters_by_default(tmp_path):
    params = {"a": {"b": jnp.arange(3.0)}, "c": ones((2, 2))}
    path = write_safetensors(
        tmp_path / "w", {"a.b": params["a"]["b"], "c": params["c"]}
    )
    blank = jax.tree.map(jnp.zeros_like, params)
    loaded = kd.ckpts.SafetensorsLoader(path=path).transform(_state(blank))
    assert_equal(loaded.params, params)


def test_other_separator(tmp_path):
    path = write_safetensors(tmp_path / "w", {"a.b/c": np.ones(2, np.float32)})
    loader = kd.ckpts.SafetensorsLoader(path=path, separator="/")
    loaded = loader.transform(_state({"a.b": {"c": zeros(2)}}))
    np.testing.assert_array_equal(loaded.params["a.b"]["c"], 1)


def test_indices_reach_into_lists(file):
    loader = kd.ckpts.SafetensorsLoader(
        path=file, new_to_old={"params.blocks": "layers"}
    )
    loaded = loader.transform(_state({"blocks": [{"w": zeros(2)}]}))
    np.testing.assert_array_equal(loaded.params["blocks"][0]["w"], 5)


def test_files_are_as_strict_as_checkpoints(file):
    state = _state({"kernel": zeros((2, 4)), "new": zeros(1)})
    names = {"params": "encoder.dense"}
    with pytest.raises(ValueError) as error:
        kd.ckpts.SafetensorsLoader(path=file, new_to_old=names).transform(state)
    message = str(error.value)
    assert "`ignore_model_keys`):\n  params.new" in message
    assert "`ignore_restored_keys`):\n  encoder.dense.bias" in message
    assert (
        "params.kernel (from encoder.dense.kernel): model (2, 4) vs checkpoint (2, 3)"
        in message
    )
    loader = kd.ckpts.SafetensorsLoader(
        path=file,
        new_to_old=names,
        ignore_model_keys=("new",),
        ignore_restored_keys=("bias",),
    )
    state = _state({"kernel": zeros((2, 3)), "new": full(1, 4.0)})
    params = loader.transform(state).params
    assert params["new"][0] == 4 and params["kernel"][1, 2] == 5


def test_files_report_what_was_loaded_too(file, caplog):
    state = _state({"enc": {"kernel": zeros((2, 3)), "bias": zeros(3)}})
    names = {"params.enc": "encoder.dense"}
    with caplog.at_level(logging.INFO, "kauldron"):
        kd.ckpts.SafetensorsLoader(path=file, new_to_old=names).transform(state)
    (record,) = caplog.records
    first, *lines = record.message.splitlines()
    assert first == f"Loaded 2 arrays from {file} (kept their values: 0, skipped: 2):"
    assert lines == ["  params: 2 loaded", "  skipped: head (1), layers (1)"]


def test_missing_file_is_not_found(tmp_path):
    for loader in (kd.ckpts.SafetensorsLoader, kd.ckpts.MsgpackLoader):
        with pytest.raises(FileNotFoundError, match="typo"):
            loader(path=tmp_path / "typo").transform(_state({}))


def test_array_below_an_array_is_refused(tmp_path):
    arrays = {"a": np.ones(1, np.float32), "a.b": np.ones(1, np.float32)}
    path = write_safetensors(tmp_path / "w", arrays)
    with pytest.raises(ValueError, match=r"'a\.b' below another array"):
        kd.ckpts.SafetensorsLoader(path=path).transform(_state({}))


def _entry(**changes):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    return {"w": {**entry, **changes}}


@pytest.mark.parametrize(
    "header, message",
    [
        (_entry(data_offsets=[0, 9999]), "not where the header says"),
        (_entry(data_offsets=[-8, 0]), "not where the header says"),
        (_entry(shape=[3]), "not where the header says"),
        (_entry(shape=[-1, -2]), "not where the header says"),
        (_entry(dtype="F128"), "unknown dtype 'F128'"),
        (_entry(data_offsets=[0]), "not valid"),
        ({"w": None}, "not valid"),
        ([1, 2], "not a mapping"),
    ],
)
def test_header_that_lies_is_refused(tmp_path, header, message):
    text = json.dumps(header).encode()
    path = tmp_path / "bad"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(ValueError, match=message):
        read_safetensors(_epath(path))


@given(st.binary(max_size=64))
def test_random_bytes_are_refused_or_empty(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "random.safetensors"
    path.write_bytes(content)
    with contextlib.suppress(ValueError):
        assert read_safetensors(_epath(path)) == {}


def _epath(path):
    from etils import epath

    return epath.Path(path)


#
# Flax
#


class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(use_running_average=True)(nn.Dense(3)(x))


def test_msgpack_of_a_flax_model(tmp_path):
    variables = jax.jit(Model().init)(jax.random.key(0), zeros((1, 2)))
    path = tmp_path / "model.msgpack"
    path.write_bytes(serialization.to_bytes(variables))
    blank = jax.tree.map(lambda leaf: zeros(leaf.shape, leaf.dtype), variables)
    state = kd.train.TrainState(
        step=0,
        params=blank["params"],
        collections={"batch_stats": blank["batch_stats"]},
    )
    loader = kd.ckpts.MsgpackLoader(
        path=path,
        new_to_old={"params": "params", "collections.batch_stats": "batch_stats"},
    )
    loaded = loader.transform(state)
    assert_equal(loaded.params, variables["params"])
    assert_equal(loaded.collections["batch_stats"], variables["batch_stats"])


def test_file_that_is_no_msgpack_is_refused(tmp_path):
    path = tmp_path / "w"
    path.write_bytes(b"\xc1 not msgpack")
    with pytest.raises(ValueError, match="not a msgpack file of flax"):
        kd.ckpts.MsgpackLoader(path=path).transform(_state({}))


def test_loaders_resolve_from_configs(file):
    with konfig.imports():
        from kauldron import kd as kd_cfg
    cfg = kd_cfg.ckpts.SafetensorsLoader(
        path=str(file), new_to_old={"params.head": "head"}
    )
    loaded = konfig.resolve(cfg).transform(_state({"head": ones(())}))
    assert loaded.params["head"] == 0
