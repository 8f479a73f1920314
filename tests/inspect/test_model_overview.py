"""The table of modules."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

from kauldron import kd, konfig, kontext
from kauldron.inspect.views import rows_of
from tests.train.toy import make_ds

COLUMNS = ["Path", "Module", "Inputs", "Outputs", "Parameter Shapes", "Own Params"]
COLUMNS += ["Total Params"]


class Net(nn.Module):
    """Shares a module, has a parameter of its own, calls another method."""

    x: kontext.Key = kontext.REQUIRED

    def setup(self):
        self.shared = nn.Dense(4)
        self.embed = nn.Embed(3, 4)
        self.head = kd.nn.Sequential(layers=[nn.Dense(5), nn.relu])

    @nn.compact
    def __call__(self, x):
        checkify.check(jnp.all(x < 1e6), "too large")
        scale = self.param("scale", nn.initializers.ones, (4,))
        x = self.shared(self.shared(x)) * scale
        return {"y": self.head(x), "z": self.embed.attend(x)}


def overview(model, **kwargs):
    table = kd.inspect.get_colab_model_overview(
        model=model,
        train_ds=make_ds(),
        ds_sharding=kd.sharding.FIRST_DIM,
        rngs={"params": jax.random.PRNGKey(0)},
        **kwargs,
    )
    return rows_of(table.data)


def test_rows_are_the_calls_in_order():
    columns, rows = overview(Net(x="batch.x"))
    assert columns == COLUMNS
    assert [(row["Path"], row["Module"]) for row in rows] == [
        ("", "Net"),
        ("shared", "Dense"),
        ("shared", "Dense"),
        ("head", "Sequential"),
        ("head.layers_0", "Dense"),
        ("embed", "Embed.attend"),
    ]


class Fails(nn.Module):
    def __call__(self, x):
        raise NotImplementedError


class TriesTwo(nn.Module):
    x: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, x):
        try:
            return Fails()(x)
        except NotImplementedError:
            return nn.Dense(2)(x)


def test_call_that_raises_has_no_outputs():
    _, (_, row, _) = overview(TriesTwo(x="batch.x"))
    assert (row["Module"], row["Outputs"]) == ("Fails", "")


def test_shapes_of_a_row():
    _, rows = overview(Net(x="batch.x"))
    assert rows[0]["Inputs"] == "x: f32[16 4]"
    assert rows[0]["Outputs"] == "y: f32[16 5]\nz: f32[16 3]"
    assert rows[0]["Parameter Shapes"] == "scale: f32[4]"
    assert rows[1]["Parameter Shapes"] == "bias: f32[4]\nkernel: f32[4 4]"


def test_root_has_all_parameters_and_shared_modules_count_once():
    model = Net(x="batch.x")
    _, rows = overview(model)
    init = checkify.checkify(lambda: model.init(jax.random.PRNGKey(0), np.ones((2, 4))))
    params = jax.eval_shape(init)[1]["params"]
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert rows[0]["Total Params"] == count
    assert sum(row["Own Params"] for row in rows) == count
    assert [row["Total Params"] for row in rows[1:3]] == [4 * 4 + 4, 0]
    assert rows[3]["Own Params"] == 0
    assert rows[3]["Total Params"] == 4 * 5 + 5


class Stack(nn.Module):
    """Layers under a transformation, with their parameters stacked."""

    @nn.compact
    def __call__(self, batch):
        body = nn.remat(nn.Dense)
        layers = nn.scan(
            lambda layer, x, _: (layer(x), None),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=3,
        )
        return layers(body(4, name="layer"), batch["x"], None)[0]


def test_transformed_modules_are_counted():
    _, rows = overview(Stack())
    assert rows[0]["Total Params"] == 3 * (4 * 4 + 4)
    assert sum(row["Own Params"] for row in rows) == rows[0]["Total Params"]


def test_config_of_each_module():
    cfg = konfig.ConfigDict(
        {"__qualname__": "m:Net", "x": "batch.x", "shared": {"features": 4}}
    )
    columns, rows = overview(Net(x="batch.x"), model_config=cfg)
    assert columns == ["Cfg", *COLUMNS]
    assert "m.Net(" in rows[0]["Cfg"]
    assert "'features': 4" in rows[1]["Cfg"]
    assert rows[3]["Cfg"] == ""


def test_config_of_layers_in_a_list():
    with konfig.imports():
        from flax import linen

        from kauldron import kd as kd_cfg
    cfg = kd_cfg.nn.Sequential(
        inputs="batch.x", layers=[linen.Dense(7), linen.Dense(8)]
    )
    _, rows = overview(konfig.resolve(cfg), model_config=cfg)
    assert [row["Cfg"] for row in rows if row["Path"]] == [
        "<ConfigDict[nn.Dense(7)]>",
        "<ConfigDict[nn.Dense(8)]>",
    ]


def test_notebooks_get_a_styled_data_frame():
    pytest.importorskip("pandas", reason='pip install "kauldron[inspect]"')
    pytest.importorskip("jinja2", reason='pip install "kauldron[inspect]"')
    table = kd.inspect.get_colab_model_overview(
        model=Stack(),
        train_ds=make_ds(),
        ds_sharding=kd.sharding.FIRST_DIM,
        rngs={"params": jax.random.PRNGKey(0)},
    )
    assert "pre-line" in table.to_html()
