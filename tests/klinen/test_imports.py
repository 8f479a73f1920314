"""klinen in a process of its own: what it loads, reading a pickle, `kd.nn` next to it."""

import json
import pickle

import pytest

from tests import compilation, processes
from tests.klinen.toy import X, auto_encoder

HEAVY = ("tensorflow", "torch", "grain", "tensorflow_datasets", "sklearn", "optax")

FLOOR = (
    *("kauldron.compat", "kauldron.errors", "kauldron.import_hooks"),
    "kauldron.lazy_namespace",
)

USE_KD_NN = """
from kauldron import kd
from kauldron import klinen as knn
import flax.linen as nn, jax.numpy as jnp

class Net(knn.Module):
    @nn.compact
    def __call__(self, x):
        return kd.nn.Dropout(0.5)(x)

model = Net().init_bind(0, jnp.ones(8))
found["with kd.nn"] = kd.klinen is knn, float(model.eval()(jnp.ones(8)).sum())
"""

WITHOUT_KD_NN = """
import pickle, sys
from kauldron import klinen as knn
import flax.linen as nn, jax.numpy as jnp
found["modules"] = [n for n, m in sys.modules.items() if "__newer__" not in vars(m)]

from tests.klinen.toy import X
model = pickle.load(open(sys.argv[1], "rb"))
found["pickle"] = float(model(X).sum()), model.training, sorted(model.rngs)

class Outer(knn.Module):
    @nn.compact
    def __call__(self, x):
        y = late.eval()(x)
        return y, Dropout(0.5)(x), self.training

class Late(knn.Module):
    @nn.compact
    def __call__(self, x):
        global Dropout
        assert "kauldron.nn" not in sys.modules
        from kauldron.nn import Dropout
        return Dropout(0.5)(x)

late = Late().init_bind(0, jnp.ones(0), method=lambda late, x: x)
model = Outer().init_bind(0, jnp.ones(8), method=lambda net, x: x)
y, dropped, training = model.with_rng(0)(jnp.ones(8))
found["during a call"] = float(y.sum()), float(dropped.max()), training
"""


def _run(script, *args):
    script = f"import json\nfound = {{}}\n{script}\nprint(json.dumps(found))"
    environment = compilation.quick_environment()
    output = processes.run_script_with_jax(script, *args, environment=environment)
    return json.loads(output.splitlines()[-1])


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a process finds that has klinen, and gets `kd.nn` during a call."""
    path = tmp_path_factory.mktemp("pickle") / "model.pkl"
    path.write_bytes(pickle.dumps(auto_encoder().with_rng(1)))
    return _run(WITHOUT_KD_NN + USE_KD_NN, str(path))


def test_it_loads_only_itself(found):
    loaded = [m for m in found["modules"] if m.startswith("kauldron") or m in HEAVY]
    own = {"kauldron", "kauldron.klinen", *FLOOR}
    assert own <= set(loaded)
    assert {m for m in loaded if not m.startswith("kauldron.klinen.")} == own


def test_a_pickle_is_read_by_another_process(found):
    total, training, rngs = found["pickle"]
    assert total == pytest.approx(float(auto_encoder().with_rng(1)(X).sum()), rel=1e-4)
    assert training is True
    assert rngs == ["default", "dropout"]


def test_kd_nn_may_be_imported_during_a_call(found):
    assert found["during a call"] == [8.0, 2.0, True]


def test_kd_nn_may_come_later(found):
    assert found["with kd.nn"] == [True, 8.0]


def test_kd_nn_may_come_first():
    assert _run("import kauldron.nn\n" + USE_KD_NN)["with kd.nn"] == [True, 8.0]
