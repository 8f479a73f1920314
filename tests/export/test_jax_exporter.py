"""Models that run with jax alone."""

import functools
import importlib.util
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

from kauldron import kd, kontext
from kauldron.export.jax_exporter import batch_structs
from tests import processes
from tests.train.toy import make_ds, make_trainer

needs_flatbuffers = pytest.mark.skipif(
    importlib.util.find_spec("flatbuffers") is None,
    reason='jax writes exported models with flatbuffers: pip install "kauldron[export]"',
)
KEY = np.array([0, 7], np.uint32)


class Normed(nn.Module):
    """Has batch statistics, dropout and a check."""

    x: kontext.Key = kontext.REQUIRED

    is_training = kd.nn.train_property()

    @nn.compact
    def __call__(self, x):
        checkify.check(jnp.all(x < 1e6), "too large")
        x = nn.BatchNorm(use_running_average=not self.is_training, name="norm")(x)
        x = kd.nn.Dropout(0.5)(x)
        return {"y": nn.Dense(2, name="dense")(x)}

    @nn.compact
    def double(self, x):
        return self(x)["y"] * 2


class WholeBatch(nn.Module):
    """A model without keys."""

    @nn.compact
    def __call__(self, batch):
        return nn.Dense(2)(batch["x"])


class Outputs(flax.struct.PyTreeNode):
    y: Any
    name: str = flax.struct.field(pytree_node=False, default="static")


class WithDataclass(WholeBatch):
    @nn.compact
    def __call__(self, batch):
        return Outputs(y=super().__call__(batch))


@functools.cache
def state_of(model):
    """Initialised once for all tests; nothing here changes it."""
    return make_trainer("unused", model=model).init_state(skip_optimizer=True)


def make(workdir, model=Normed(x="batch.x"), **fields):
    """A trainer with an exporter, and its state."""
    exporter = kd.export.JaxModelExporter(strict=True, **fields)
    trainer = make_trainer(workdir, model=model, exporter=exporter)
    return trainer, state_of(model)


def export(trainer, state, is_training=True):
    """Write the file and load it again."""
    exporter = trainer.exporter
    exporter.export(
        model=trainer.model,
        state=state,
        element_spec=trainer.train_ds.element_spec,
        is_training=is_training,
    )
    path = exporter.path(is_training=is_training)
    return jax.export.deserialize(bytearray(path.read_bytes()))


def inputs_of_size(size):
    return np.random.default_rng(size).normal(size=(size, 4)).astype(np.float32)


@needs_flatbuffers
def test_equals_the_model_for_any_batch_size(tmp_path):
    trainer, state = make(tmp_path, is_training=False)
    loaded = export(trainer, state)
    statistics = {"batch_stats": {"norm": {"mean": np.full(4, 0.3, np.float32)}}}
    statistics["batch_stats"]["norm"]["var"] = np.full(4, 2.0, np.float32)
    all_x = inputs_of_size(16)
    expected = _apply(trainer.model, {"params": state.params, **statistics}, all_x)["y"]
    for size in (3, 16):
        x = all_x[:size]
        outputs = loaded.call(params=state.params, key=KEY, collections=statistics, x=x)
        np.testing.assert_allclose(outputs["preds"]["y"], expected[:size], rtol=1e-5)
        assert set(outputs) == {"preds", "interms"}


def _apply(model, variables, x):
    checked = checkify.checkify(
        lambda: model.apply(variables, x, is_training_property=False)
    )
    return jax.jit(checked)()[1]


@needs_flatbuffers
def test_training_pass_uses_the_key_and_returns_the_collections(tmp_path):
    trainer, state = make(tmp_path)
    loaded = export(trainer, state)
    x = inputs_of_size(5)
    kwargs = {"params": state.params, "collections": state.collections, "x": x}
    one, same = (loaded.call(key=KEY, **kwargs) for _ in range(2))
    other = loaded.call(key=KEY + 1, **kwargs)
    np.testing.assert_array_equal(one["preds"]["y"], same["preds"]["y"])
    assert not np.allclose(one["preds"]["y"], other["preds"]["y"])
    mean = one["collections"]["batch_stats"]["norm"]["mean"]
    np.testing.assert_allclose(mean, 0.01 * x.mean(axis=0), rtol=1e-4)
    assert "dense" in one["interms"]


@needs_flatbuffers
def test_can_be_differentiated(tmp_path):
    trainer, state = make(
        tmp_path, WholeBatch(), batch_specs={"x": "n, 4", "y": "n, 2"}
    )
    loaded = export(trainer, state)
    batch = {"x": inputs_of_size(3), "y": np.zeros((3, 2), np.float32)}

    def loss(params):
        return loaded.call(params=params, key=KEY, batch=batch)["preds"].sum()

    gradients = jax.jit(jax.grad(loss))(state.params)
    np.testing.assert_allclose(gradients["Dense_0"]["bias"], [3, 3])


@needs_flatbuffers
def test_model_without_keys_takes_the_batch(tmp_path):
    trainer, state = make(tmp_path, WholeBatch())
    loaded = export(trainer, state)
    batch = {"x": inputs_of_size(3), "y": np.zeros((3, 2), np.float32)}
    outputs = loaded.call(params=state.params, key=KEY, batch=batch)
    expected = jax.jit(trainer.model.apply)({"params": state.params}, batch)
    np.testing.assert_allclose(outputs["preds"], expected, rtol=1e-6)


@needs_flatbuffers
def test_outputs_of_own_classes_become_dicts(tmp_path):
    trainer, state = make(tmp_path, WithDataclass())
    loaded = export(trainer, state)
    batch = {"x": inputs_of_size(2), "y": np.zeros((2, 2), np.float32)}
    outputs = loaded.call(params=state.params, key=KEY, batch=batch)
    assert list(outputs["preds"]) == ["y"]


@needs_flatbuffers
def test_another_method(tmp_path):
    trainer, state = make(tmp_path, model_method="double", is_training=False)
    loaded = export(trainer, state)
    assert loaded.fun_name == "double"
    x = inputs_of_size(2)
    kwargs = {"params": state.params, "collections": state.collections}
    doubled = loaded.call(key=KEY, x=x, **kwargs)["preds"]
    single = _apply(trainer.model, {"params": state.params, **state.collections}, x)
    np.testing.assert_allclose(doubled, 2 * single["y"], rtol=1e-6)


@needs_flatbuffers
def test_platforms_are_this_one_and_cpu_unless_chosen(tmp_path):
    trainer, state = make(tmp_path, WholeBatch())
    assert set(export(trainer, state).platforms) == {
        jax.export.default_export_platform(),
        "cpu",
    }
    trainer, state = make(tmp_path, WholeBatch(), platforms=["gpu", "tpu", "cuda"])
    assert export(trainer, state).platforms == ("cuda", "tpu")


@needs_flatbuffers
def test_path_says_which_pass_and_folders_are_made(tmp_path):
    trainer, state = make(
        tmp_path, WholeBatch(), path_template="{workdir}/a/{name}_{train_or_eval}"
    )
    export(trainer, state, is_training=True)
    export(trainer, state, is_training=False)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["train_model_eval", "train_model_train"]


def test_path_with_an_unknown_name_is_explained(tmp_path):
    trainer, _ = make(tmp_path, WholeBatch(), path_template="{workdr}/x")
    with pytest.raises(ValueError, match=r"path_template='\{workdr\}/x'.*\{workdir\}"):
        trainer.exporter.path()


class TakesKey(nn.Module):
    key: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, key):
        return nn.Dense(2)(key)


@needs_flatbuffers
def test_argument_with_a_taken_name_is_explained(tmp_path):
    trainer, state = make(tmp_path, TakesKey(key="batch.x"))
    with pytest.raises(ValueError, match="argument called 'key'"):
        export(trainer, state)


def exporting_trainer(workdir, exporter, **changes):
    """A trainer with the usual step, which others share."""
    return make_trainer(workdir, num_train_steps=2, **changes).replace(
        exporter=exporter
    )


def test_failure_is_logged_and_training_goes_on(tmp_path, caplog):
    exporter = kd.export.JaxModelExporter(batch_specs="b, b")
    trainer = exporting_trainer(tmp_path, exporter, checkpointer=None)
    with caplog.at_level("ERROR", logger="kauldron"):
        state, _ = trainer.train()
    assert int(state.step) == 2
    (record,) = (r for r in caplog.records if "not exported" in r.getMessage())
    assert "Traceback" in record.getMessage()
    assert not list(tmp_path.glob("*.jax_exported"))


def test_failure_stops_a_strict_run(tmp_path):
    exporter = kd.export.JaxModelExporter(batch_specs="b, 4, 4", strict=True)
    trainer = exporting_trainer(tmp_path, exporter, checkpointer=None)
    with pytest.raises((ValueError, ImportError)) as error:
        trainer.train()
    assert any("train_model.jax_exported" in note for note in error.value.__notes__)


@pytest.mark.parametrize("specs", ["b, 4, 4", "b, 5", "b ("])
def test_sizes_that_do_not_fit_name_the_arrays(specs):
    spec = make_ds().element_spec
    with pytest.raises(
        ValueError, match=r"does not fit the batch \(batch.x: \(16, 4\)"
    ):
        batch_structs(spec, specs)


def test_texts_and_numbers_in_the_batch_have_no_open_sizes():
    spec = {
        "x": kd.data.ArraySpec((None, 4), np.int64),
        "n": kd.data.ArraySpec((), np.float32),
        "text": kd.data.ArraySpec((16,), object),
    }
    batch = batch_structs(spec, "b, ...")
    assert str(batch["x"].shape) == "(b, 4)"
    assert batch["x"].dtype == np.int32
    assert batch["n"].shape == ()
    assert batch["text"] is None


def test_missing_flatbuffers_names_the_extra(tmp_path, monkeypatch):
    trainer, state = make(tmp_path, WholeBatch())
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *args: None if name == "flatbuffers" else find_spec(name, *args),
    )
    with pytest.raises(ImportError, match=r"kauldron\[export\]"):
        export(trainer, state)


@needs_flatbuffers
def test_training_exports_once_and_the_file_needs_only_jax(tmp_path, monkeypatch):
    trainer = exporting_trainer(tmp_path, kd.export.JaxModelExporter())
    state, _ = trainer.train()
    path = tmp_path / "train_model.jax_exported"
    written = path.stat().st_mtime_ns
    trainer.replace(num_train_steps=3).train()
    assert path.stat().st_mtime_ns == written
    x = inputs_of_size(3)
    dense = state.params["dense"]
    np.savez(tmp_path / "in.npz", x=x, kernel=dense["kernel"], bias=dense["bias"])
    program = """
        import sys, numpy as np, jax
        data = np.load("in.npz")
        exported = jax.export.deserialize(
            bytearray(open("train_model.jax_exported", "rb").read())
        )
        params = {"dense": {"kernel": data["kernel"], "bias": data["bias"]}}
        key = np.zeros(2, np.uint32)
        outputs = exported.call(params=params, key=key, x=data["x"])
        np.save("out.npy", outputs["preds"]["y"])
        assert not {"kauldron", "flax"} & set(sys.modules)
    """
    monkeypatch.chdir(tmp_path)
    processes.run_script_with_jax(program)
    expected = x @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"])
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-5)


def test_trainers_export_nothing_by_default(tmp_path):
    make_trainer(tmp_path, num_train_steps=1, checkpointer=None).train()
    assert isinstance(make_trainer(tmp_path).exporter, kd.export.NoopExporter)
    assert not list(tmp_path.glob("*.jax_exported"))


def test_base_class_gives_the_keys_of_each_pass(tmp_path):
    exporter = make(tmp_path, WholeBatch())[0].exporter
    assert isinstance(exporter, kd.export.ModelExporter)
    assert set(exporter.get_rngs(is_training=True)) == {"dropout", "default"}
    assert exporter.get_rngs(is_training=False) == {}
