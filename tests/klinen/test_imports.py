"""What importing klinen loads."""

import subprocess
import sys

import pytest

HEAVY = ("tensorflow", "torch", "grain", "tensorflow_datasets", "sklearn", "optax")


def _run(script):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_only_itself_and_no_data_library():
    loaded = _run(
        "import sys, kauldron.klinen\n"
        "print(*[m for m in sys.modules if m.startswith('kauldron') or m in "
        f"{HEAVY!r}])"
    )
    own = ("kauldron", "kauldron.klinen", "kauldron.import_hooks")
    others = [m for m in loaded if m not in own and "kauldron.klinen." not in m]
    assert others == []


@pytest.mark.parametrize("first", ["klinen", "kd"])
def test_kd_nn_follows_the_model_whichever_is_imported_first(first):
    imports = {
        "klinen": "from kauldron import klinen as knn\nfrom kauldron import kd",
        "kd": "from kauldron import kd\nfrom kauldron import klinen as knn",
    }
    output = _run(
        f"{imports[first]}\n"
        "import flax.linen as nn, jax.numpy as jnp\n"
        "class Net(knn.Module):\n"
        "  @nn.compact\n"
        "  def __call__(self, x):\n"
        "    return kd.nn.Dropout(0.5)(x)\n"
        "model = Net().init_bind(0, jnp.ones(8))\n"
        "print(kd.klinen is knn, float(model.eval()(jnp.ones(8)).sum()))\n"
    )
    assert output == ["True", "8.0"]


def test_kd_nn_may_be_imported_during_a_call():
    output = _run(
        "from kauldron import klinen as knn\n"
        "import flax.linen as nn, jax.numpy as jnp\n"
        "class Net(knn.Module):\n"
        "  @nn.compact\n"
        "  def __call__(self, x):\n"
        "    y = late.eval()(x)\n"
        "    return y, Dropout(0.5)(x), self.training\n"
        "class Late(knn.Module):\n"
        "  @nn.compact\n"
        "  def __call__(self, x):\n"
        "    global Dropout\n"
        "    from kauldron.nn import Dropout\n"
        "    return Dropout(0.5)(x)\n"
        "late = Late().init_bind(0, jnp.ones(0), method=lambda late, x: x)\n"
        "model = Net().init_bind(0, jnp.ones(8), method=lambda net, x: x)\n"
        "y, dropped, training = model.with_rng(0)(jnp.ones(8))\n"
        "print(float(y.sum()), float(dropped.max()), training)\n"
    )
    assert output == ["8.0", "2.0", "True"]
