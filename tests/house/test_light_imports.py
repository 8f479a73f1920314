"""Importing costs only what is used."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests import processes

PACKAGE = pathlib.Path(__file__).parents[2] / "kauldron"
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
    [
        "import kauldron",
        "from kauldron import kd",
        "from kauldron import konfig",
        "from kauldron import kxm; kxm.Experiment, kxm.Local, kxm.KauldronSweep",
    ],
)
def test_importing_the_namespace_loads_no_array_library(statement):
    assert _loaded_after(statement) & HEAVY == set()


OPTIONAL = {
    "tensorflow",
    "tensorflow_datasets",
    "orbax",
    "grain",
    "sklearn",
    "pandas",
    "matplotlib",
    "cv2",
    "PIL",
    "torch",
}


# Prints the packages that a usual program has loaded, then what cannot be imported.
IMPORTS = """
import importlib, json, sys, warnings
from kauldron import kd
kd.nn.Dropout, kd.losses.L2, kd.metrics.Accuracy, kd.summaries.ShowImages
kd.sharding.ShardingStrategy, kd.optim.partial_updates, kd.evals.Evaluator
kd.data.py.Arrays, kd.ckpts.Checkpointer, kd.train.Trainer, kd.klinen.Module
kd.contrib.losses.DiceLoss, kd.contrib.metrics.RootMeanSquaredError
loaded = sorted({name.split(".")[0] for name in sys.modules})

warnings.simplefilter("ignore")
failures = {}
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except ImportError as error:
        if "kauldron[" not in str(error) and "tensorflow" not in str(error):
            failures[name] = repr(error)
    except Exception as error:
        failures[name] = repr(error)
print(json.dumps([loaded, failures]))
"""


def _module_names():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.fixture(scope="module")
def loaded_and_failures():
    names = json.dumps(list(_module_names()))
    output = processes.run_script_with_jax(IMPORTS, names)
    return json.loads(output.splitlines()[-1])


def test_models_losses_and_the_trainer_load_no_optional_library(loaded_and_failures):
    loaded, _ = loaded_and_failures
    assert "flax" in loaded
    assert set(loaded) & OPTIONAL == set()


def test_naming_a_run_strategy_loads_no_jax():
    loaded = _loaded_after("from kauldron import kd\nkd.evals.EveryNSteps(3)")
    assert loaded & HEAVY == set()


def test_every_module_imports(loaded_and_failures):
    """Modules that need an optional library say so; nothing else may fail."""
    _, failures = loaded_and_failures
    assert failures == {}


def test_unknown_member_of_kd_names_the_nearest():
    from kauldron import kd

    with pytest.raises(AttributeError, match="Did you mean 'konfig'"):
        kd.konfg


def test_dir_of_kd_lists_the_packages():
    from kauldron import kd

    assert {"konfig", "kontext", "nn"} <= set(dir(kd))
