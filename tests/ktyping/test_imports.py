"""Importing costs little and loads no array library."""

import json
import subprocess
import sys

import pytest

FOREIGN = {
    *("jax", "numpy", "tensorflow", "torch", "jaxtyping", "typeguard", "lark", "clu"),
    *("xarray", "flax", "unittest.mock"),
}


def _loaded_after(script: str) -> set[str]:
    script += "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "script",
    [
        "import kauldron.ktyping",
        "from kauldron.typing import Float, Shape, typechecked",
        "from kauldron import kd; kd.ktyping.Float['a b']; kd.typing.ArraySpec",
    ],
)
def test_import_loads_no_array_library(script):
    assert _loaded_after(script) & FOREIGN == set()


def test_decorating_and_calling_loads_nothing_either():
    script = """
import kauldron.ktyping as kt
@kt.typechecked
def f(x: kt.Float["n"] | list[int], y: kt.XInt["m"] | None = None) -> int:
    return 3
f([1])
try:
    f("a")
except kt.KTypeCheckError as error:
    str(error)
"""
    assert _loaded_after(script) & FOREIGN == set()


def test_checking_jax_arrays_does_not_load_the_other_libraries():
    script = """
import jax.numpy as jnp
import kauldron.ktyping as kt
kt.check_type(jnp.ones(2), kt.XFloat["n"], nested_ok=True)
assert not isinstance(jnp.ones(2), kt.TfFloat["n"])
"""
    loaded = _loaded_after(script)
    assert not loaded & {"tensorflow", "torch", "jaxtyping", "typeguard"}
