"""Arrays of TensorFlow, torch and xarray, loaded later than kauldron."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import kauldron.ktyping as kt

NUMBERS = (
    "Num Bool Int SInt UInt IntOrBool Int8 Int32 UInt8 Float Float16 Float32 BFloat16"
)


def _run(script: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def _accepting(value, prefix: str) -> set[str]:
    return {
        name
        for name in NUMBERS.split()
        if isinstance(value, getattr(kt, prefix + name)["..."])
    }


EXPECTED = {
    "float32": {"Num", "Float", "Float32"},
    "bfloat16": {"Num", "Float", "BFloat16"},
    "float16": {"Num", "Float", "Float16"},
    "int32": {"Num", "Int", "SInt", "IntOrBool", "Int32"},
    "uint8": {"Num", "Int", "UInt", "IntOrBool", "UInt8"},
    "bool": {"Bool", "IntOrBool"},
    "complex64": {"Num"},
}


def test_absent_libraries_answer_no():
    script = """
        import sys, numpy as np, kauldron.ktyping as kt
        for name in ("TfArray", "TfFloat"):
            assert not isinstance(np.ones(2), getattr(kt, name))
        assert isinstance(np.ones(2), kt.XArray)
        assert not isinstance("text", kt.XArray)
        assert not {"tensorflow", "torch"} & set(sys.modules)
    """
    assert _run(script) == ""


def test_half_imported_library_is_asked_again_later():
    script = """
        import sys, types
        import kauldron.ktyping as kt

        class Tensor:
            dtype, shape = "torch.float32", (2,)

        torch = sys.modules["torch"] = types.ModuleType("torch")
        print(isinstance(Tensor(), kt.XFloat))
        torch.Tensor = Tensor
        print(isinstance(Tensor(), kt.XFloat["n"]))
    """
    assert _run(script).split() == ["False", "True"]


def test_xarray_values_are_no_arrays():
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    value = xarray.DataArray(np.ones(2))
    assert not isinstance(value, kt.XArray)
    assert isinstance(value, kt.ArraySpec)


# --------------------------------------------------------------------------------------
# torch
# --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("dtype", EXPECTED)
def test_dtypes_of_torch(torch, dtype):
    value = torch.ones((2, 3), dtype=getattr(torch, dtype))
    assert _accepting(value, "X") == EXPECTED[dtype]
    assert _accepting(value, "") == _accepting(value, "Tf") == set()


def test_functions_on_torch(torch):
    @kt.typechecked
    def f(x: kt.XFloat["*b n"], y: kt.XFloat["n"]) -> kt.XFloat["*b n"]:
        assert all(type(size) is int for size in kt.shape("*b n"))
        return x + y

    for _ in range(2):
        assert tuple(f(torch.ones(2, 3), torch.ones(3)).shape) == (2, 3)
    with pytest.raises(kt.KTypeCheckError, match=r"argument y = torch.f32\[4\]"):
        f(torch.ones(2, 3), torch.ones(4))
    assert f(np.ones((2, 3)), np.ones(3)).shape == (2, 3)


def test_scalars_and_parameters_of_torch(torch):
    assert isinstance(torch.tensor(1.0), kt.ScalarFloat)
    assert isinstance(torch.tensor(1), kt.ScalarInt)
    assert isinstance(torch.nn.Parameter(torch.ones(2)), kt.XFloat["n"])


def test_torch_may_be_loaded_after_kauldron(torch):
    script = """
        import kauldron.ktyping as kt
        isinstance(3, kt.XFloat)
        import torch
        print(isinstance(torch.ones(2), kt.XFloat["n"]))
    """
    assert _run(script) == "True"


# --------------------------------------------------------------------------------------
# TensorFlow
# --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


@pytest.mark.parametrize("dtype", EXPECTED)
def test_dtypes_of_tensorflow(tf, dtype):
    value = tf.zeros((2, 3), getattr(tf, dtype))
    assert _accepting(value, "Tf") == _accepting(value, "X") == EXPECTED[dtype]
    assert _accepting(value, "") == set()
    assert _accepting(tf.Variable(value), "Tf") == EXPECTED[dtype]


def test_strings_of_tensorflow_are_only_arrays(tf):
    value = tf.constant(["a"])
    assert isinstance(value, kt.TfArray["n"])
    assert _accepting(value, "Tf") == set()


def test_functions_on_tensorflow(tf):
    @kt.typechecked
    def f(x: kt.TfFloat["*b n"], y: kt.TfFloat["n"]) -> kt.TfFloat["*b n"]:
        return x + y

    for _ in range(2):
        assert f(tf.ones((2, 3)), tf.ones(3)).shape == (2, 3)
    with pytest.raises(kt.KTypeCheckError, match=r"argument y = tf.f32\[4\]"):
        f(tf.ones((2, 3)), tf.ones(4))
    with pytest.raises(kt.KTypeCheckError, match=r"numpy.ndarray which is not"):
        f(np.ones((2, 3), "f4"), tf.ones(3))


def test_unknown_sizes_and_ranks_of_tensorflow(tf):
    seen = []

    @kt.typechecked
    def f(x: kt.TfFloat["b n"], y: kt.TfFloat["b 3"]):
        seen.append((kt.dim["b"], kt.dim.get("n")))
        return x

    def traced(x_shape, y_shape):
        specs = [tf.TensorSpec(x_shape, tf.float32), tf.TensorSpec(y_shape, tf.float32)]
        tf.function(f, input_signature=specs).get_concrete_function()
        return seen.pop()

    assert traced([None, 3], [None, 3]) == (kt.UNKNOWN_DIM, 3)
    assert traced([5, 3], [None, 3]) == (5, 3)
    assert traced([None, 3], [5, 3]) == (5, 3)
    assert traced(None, [5, 3]) == (5, None)


def test_tensor_specs_are_specs(tf):
    spec = tf.TensorSpec([None, 3], tf.float32)
    assert isinstance(spec, kt.ArraySpec["b 3"])
    assert not isinstance(spec, kt.TfArray)
    assert not isinstance(tf.ones(2), kt.ArraySpec)


def test_scalars_of_tensorflow(tf):
    assert isinstance(tf.constant(1.0), kt.ScalarFloat)
    assert isinstance(tf.constant(True), kt.ScalarBool)
    assert not isinstance(tf.constant([1.0]), kt.ScalarFloat)


def test_tensorflow_may_be_loaded_after_kauldron(tf):
    script = """
        import kauldron.ktyping as kt
        isinstance(3, kt.TfFloat)
        import tensorflow as tf
        print(isinstance(tf.ones(2), kt.TfFloat["n"]))
    """
    assert _run(script) == "True"
