"""What importing klinen loads."""

import subprocess
import sys

HEAVY = ("tensorflow", "torch", "grain", "tensorflow_datasets", "sklearn", "optax")

FLOOR = ("kauldron.errors", "kauldron.import_hooks", "kauldron.lazy_namespace")

USE_KD_NN = """
from kauldron import kd
from kauldron import klinen as knn
import flax.linen as nn, jax.numpy as jnp

class Net(knn.Module):
    @nn.compact
    def __call__(self, x):
        return kd.nn.Dropout(0.5)(x)

model = Net().init_bind(0, jnp.ones(8))
print(kd.klinen is knn, float(model.eval()(jnp.ones(8)).sum()))
"""


def _run(script):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_it_loads_only_itself_and_kd_nn_may_come_later():
    output = _run(
        "import sys, kauldron.klinen\n"
        "names = [m for m in sys.modules if m.startswith('kauldron') or m in "
        f"{HEAVY!r}]\n"
        f"{USE_KD_NN}"
        "print(*names)\n"
    )
    assert output[:2] == ["True", "8.0"]
    own = ("kauldron", "kauldron.klinen", *FLOOR)
    loaded = output[2:]
    assert set(own) <= set(loaded)
    others = [m for m in loaded if m not in own and "kauldron.klinen." not in m]
    assert others == []


def test_kd_may_come_first():
    output = _run("from kauldron import kd\n" + USE_KD_NN)
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
