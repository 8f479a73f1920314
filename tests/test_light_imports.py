"""Importing costs only what is used."""

import json
import subprocess
import sys

import pytest

HEAVY = {"jax", "jaxlib", "numpy", "flax", "optax", "orbax", "grain", "tensorflow"}


def _loaded_after(statement: str) -> set[str]:
    """Top-level packages in `sys.modules` of a fresh process after `statement`."""
    script = (
        f"{statement}\nimport json, sys\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "statement",
    ["import kauldron", "from kauldron import kd", "from kauldron import konfig"],
)
def test_importing_the_namespace_loads_no_array_library(statement):
    assert _loaded_after(statement) & HEAVY == set()


def test_unknown_member_of_kd_names_the_nearest():
    from kauldron import kd

    with pytest.raises(AttributeError, match="Did you mean 'konfig'"):
        kd.konfg  # noqa: B018


def test_dir_of_kd_lists_the_packages():
    from kauldron import kd

    assert {"konfig", "kontext", "nn"} <= set(dir(kd))
