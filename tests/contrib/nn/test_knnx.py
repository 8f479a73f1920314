"""NNX models with the functional interface of linen, and in the trainer."""

import dataclasses
import functools
import gc
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from kauldron.contrib.modules import knnx_examples

from kauldron import kd, konfig, kontext, writers
from kauldron.contrib import knnx
from tests.contrib.nn.nnx_models import Block, Net, StaticNet

# Models are of one size: what they compute eagerly is compiled once for all of them.
KEYS = {name: jax.random.key(i) for i, name in enumerate(("params", "dropout"))}
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)


def _shapes(tree):
    return {
        str(kontext.Path.from_jax_path(path)): leaf.shape
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _values(tree):
    """Copies that do not change when the variables do."""
    return [
        np.array(jax.random.key_data(x) if _is_key(x) else x)
        for x in jax.tree.leaves(tree)
    ]


def _is_key(x):
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(_values(a), _values(b)):
        np.testing.assert_array_equal(x, y)


#
# init and apply
#


def test_example_has_keys_parameters_and_streams_at_their_paths():
    model = knnx_examples.SimpleKdNnxModule(input_dim=4, hdim=8, output_dim=1)
    assert kontext.get_keypaths(model) == {"image": "batch.image"}
    variables = jax.jit(model.init)({"default": jax.random.key(0)}, X)
    assert _shapes(variables["params"]) == {
        "backbone.lin.bias.value": (8,),
        "backbone.lin.kernel.value": (4, 8),
        "proj.bias.value": (1,),
        "proj.kernel.value": (8, 1),
    }
    assert set(variables) == {"params", "nnx"}
    assert set(variables["nnx"]["rng_vars"]["backbone"]["dropout"]["rngs"]) == {
        "count",
        "key",
    }
    assert not jax.tree.leaves(variables["nnx"]["graphdef"])
    apply = functools.partial(model.apply, is_training_property=False)
    assert jax.jit(apply)(variables, X).shape == (6, 1)


def test_rngs_decide_the_result_and_none_continues_the_stored_stream():
    model = Net()
    variables = model.init(KEYS, X)

    def run(rngs):
        return np.asarray(model.apply(variables, X, rngs=rngs)["y"])

    key, other = jax.random.key(5), jax.random.key(6)
    np.testing.assert_array_equal(run({"dropout": key}), run({"dropout": key}))
    assert (run({"dropout": key}) != run({"dropout": other})).any()
    np.testing.assert_array_equal(run(None), run({"noise": key}))
    np.testing.assert_array_equal(
        run({"dropout": jax.random.PRNGKey(5)}), run({"dropout": kd.random.PRNGKey(5)})
    )


def test_streams_of_one_name_get_different_keys():
    class TwoDropouts(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Dropout(0.5, rngs=rngs)
            self.second = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.first(x), self.second(x)

    model = knnx.LinenModuleFromNnxDef(TwoDropouts)
    variables = model.init({"dropout": jax.random.key(0)})
    first, second = model.apply(
        variables, np.ones((6, 8), np.float32), rngs={"dropout": jax.random.key(1)}
    )
    assert (np.asarray(first) != np.asarray(second)).any()


@pytest.mark.parametrize("model", [Net(), StaticNet()], ids=["dynamic", "static"])
def test_apply_changes_nothing_that_it_was_given(model):
    variables = model.init(KEYS, X)
    before = _values(variables)
    _, changed = model.apply(variables, X, rngs=KEYS, mutable=True)
    for was, now in zip(before, _values(variables)):
        np.testing.assert_array_equal(was, now)
    mean = changed["nnx"]["attributes"]["block"]["norm"]["mean"]
    assert np.asarray(mean[...]).any()


def test_mode_switches_dropout_and_batch_norm():
    model = Net()
    variables = model.init(KEYS, X)
    evaluated = model.apply(variables, X, is_training_property=False)
    again = model.apply(variables, X, rngs=KEYS, is_training_property=False)
    np.testing.assert_array_equal(evaluated["y"], again["y"])
    trained = model.apply(variables, X, rngs=KEYS)
    assert not np.array_equal(trained["y"], evaluated["y"])


def test_static_module_keeps_its_structure_in_both_modes():
    for model, is_same in ((StaticNet(), True), (Net(), False)):
        variables = model.init(KEYS, X, is_training_property=True)
        _, changed = model.apply(variables, X, mutable=True, is_training_property=False)
        structures = [v["nnx"]["graphdef"] for v in (variables, changed)]
        assert (structures[0] == structures[1]) is is_same


def test_intermediates_are_those_of_this_call_if_captured():
    model = Net()
    variables = model.init(KEYS, X)
    kwargs = {"mutable": True, "is_training_property": False}
    _, changed = model.apply(variables, X, capture_intermediates=True, **kwargs)
    (hidden,) = changed["intermediates"]["block"]["hidden"]
    np.testing.assert_array_equal(hidden, model.apply(variables, X, method="embed"))
    _, changed = model.apply(variables, X, **kwargs)
    assert changed["intermediates"] == {}


def test_mutable_is_a_flax_filter():
    model = Net()
    variables = model.init(KEYS, X)
    _, changed = model.apply(variables, X, mutable=["nnx"])
    assert set(changed) == {"nnx"}
    assert isinstance(model.apply(variables, X), dict)


def test_method_may_be_a_function():
    model = Net()
    variables = model.init(KEYS, X)
    twice = model.apply(variables, X, method=lambda self, x: 2 * self.embed(x))
    once = np.asarray(model.apply(variables, X, method="embed"))
    np.testing.assert_array_equal(twice, 2 * once)


def test_single_key_is_that_of_the_parameters_and_no_key_is_seed_0():
    @dataclasses.dataclass(kw_only=True)
    class Plain(knnx.KdNnxModule):
        def setup(self, rngs):
            self.lin = nnx.Linear(8, 8, rngs=rngs)

        def __call__(self, x):
            return self.lin(x)

    key = jax.random.key(3)
    _assert_same(Plain().init(key)["params"], Plain().init({"params": key})["params"])
    _assert_same(
        Plain().init()["params"], Plain().init({"default": jax.random.key(0)})["params"]
    )


def test_init_leaves_the_model_as_it_is_also_after_native_use():
    model = knnx_examples.SimpleKdNnxModule(input_dim=4, hdim=8, output_dim=1)
    fresh = model.init(KEYS)
    assert not hasattr(model, "proj")
    model.setup()
    kernel = model.proj.kernel[...]
    assert model(X).shape == (6, 1)
    _assert_same(model.init(KEYS), fresh)
    np.testing.assert_array_equal(model.proj.kernel[...], kernel)


def test_two_inits_agree_about_the_structure_although_it_holds_factories():
    model = Net()
    structures = [jax.tree.structure(jax.eval_shape(model.init, KEYS)) for _ in "ab"]
    assert structures[0] == structures[1]


def test_model_is_hashed_by_identity():
    @functools.partial(jax.jit, static_argnums=0)
    def apply(model, variables):
        return model.apply(variables, X)

    model = Net()
    assert model != Net()
    assert apply(model, model.init(KEYS))["y"].shape == (6, 1)


def test_missing_stream_is_named_with_the_way_to_add_it():
    with pytest.raises(ValueError, match=r"'params'.*RngStream\(name='params'"):
        Net().init({"noise": jax.random.key(0)})


def test_class_without_setup_is_refused_by_name():
    with pytest.raises(TypeError, match="Lazy has no method `setup"):

        class Lazy(knnx.KdNnxModule):
            pass


def test_setup_without_rngs_works_with_a_warning():
    @dataclasses.dataclass(kw_only=True)
    class Own(knnx.KdNnxModule):
        def setup(self):
            self.lin = nnx.Linear(8, 8, rngs=nnx.Rngs(0))

    with pytest.warns(UserWarning, match="no parameter `rngs`"):
        assert "lin" in Own().init(KEYS)["params"]


def test_lists_as_settings_are_refused_by_name():
    @dataclasses.dataclass(kw_only=True)
    class Listed(knnx.KdNnxModule):
        sizes: list

        def setup(self, rngs):
            pass

    with pytest.raises(TypeError, match="sizes"):
        Listed(sizes=[1, 2]).init(KEYS)


def test_errors_of_a_wrapped_class_are_its_own():
    class Broken(nnx.Module):
        def __init__(self, rngs):
            raise TypeError("my own mistake")

    with pytest.raises(TypeError, match="my own mistake"):
        knnx.LinenModuleFromNnxDef(Broken).init(KEYS)


def test_any_nnx_class_becomes_a_model():
    model = knnx.LinenModuleFromNnxDef(functools.partial(Block, 8))
    variables = model.init(KEYS)
    assert set(variables["params"]["module"]) == {"lin", "norm"}
    assert model.apply(variables, X).shape == (6, 8)


#
# In the trainer
#

with konfig.imports():
    import optax as optax_cfg

    from kauldron import kd as kd_cfg
    from tests.contrib.nn import nnx_models


def _make_cfg(workdir, *, model="Net", **changes):
    cfg = kd_cfg.train.Trainer(
        seed=0,
        workdir=str(workdir),
        num_train_steps=12,
        log_metrics_every=1,
        profiler=None,
        train_ds=kd_cfg.data.py.Arrays(nnx_models.sums, batch_size=16, shuffle=True),
        model=getattr(nnx_models, model)(),
        train_losses={"l2": kd_cfg.losses.L2(preds="preds.y", targets="batch.y")},
        train_metrics={
            "hidden": kd_cfg.metrics.Norm(tensor="interms.block.hidden[0]"),
            "weight": kd_cfg.metrics.Norm(tensor="params.head.kernel.value"),
        },
        optimizer=optax_cfg.adam(3e-2),
        checkpointer=kd_cfg.ckpts.Checkpointer(save_interval_steps=4),
        evals={
            "test": kd_cfg.evals.Evaluator(
                run=kd_cfg.evals.EveryNSteps(12),
                num_batches=None,
                ds=kd_cfg.data.py.Arrays(
                    nnx_models.sums, batch_size=16, shuffle=False, num_epochs=1
                ),
            )
        },
    )
    for name, value in changes.items():
        cfg[name] = value
    return cfg


def _train(cfg):
    state, aux = konfig.resolve(cfg).train()
    return state, aux


compiled: list[str] = []  # names of the programs that the run of `Net` compiles


@pytest.fixture(scope="module")
def run_of_net(tmp_path_factory):
    """The trainer of a run of `Net`, and its last state."""

    def on_event(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(kwargs.get("fun_name")))

    trainer = konfig.resolve(_make_cfg(tmp_path_factory.mktemp("net")))
    jax.monitoring.register_event_duration_secs_listener(on_event)
    try:
        state, _ = trainer.train()
    finally:
        jax.monitoring.clear_event_listeners()
    return trainer, state


@pytest.mark.parametrize("model", ["Net", "StaticNet"])
def test_nnx_model_trains_with_keys_intermediates_and_evaluations(
    model, run_of_net, tmp_path
):
    trainer, _ = run_of_net
    workdir = pathlib.Path(trainer.workdir)
    if model == "StaticNet":
        workdir = tmp_path
        once = kd_cfg.ckpts.Checkpointer(save_interval_steps=12)
        _train(_make_cfg(workdir, model=model, checkpointer=once))
    lines = writers.read_scalars(workdir / "train")
    lines = [line for line in lines if "losses/l2" in line["values"]]
    losses = [line["values"]["losses/l2"] for line in lines]
    assert losses[-1] < 0.8 * losses[0]
    assert {"metrics/hidden", "metrics/weight"} <= set(lines[-1]["values"])
    [*_, last] = writers.read_scalars(workdir / "test")
    assert np.isfinite(last["values"]["losses/l2"])


@pytest.mark.usefixtures("run_of_net")
def test_step_of_an_nnx_model_is_compiled_once():
    assert len([name for name in compiled if "step" in name]) == 1


def test_interrupted_training_continues_bit_for_bit(run_of_net, tmp_path):
    trainer, whole = run_of_net
    shutil.copytree(trainer.workdir, tmp_path / "part")
    for later in (8, 12):
        shutil.rmtree(tmp_path / "part" / "checkpoints" / f"ckpt_{later}")
    assert (tmp_path / "part" / "checkpoints" / "ckpt_4").is_dir()
    gc.collect()
    continued, _ = _train(_make_cfg(tmp_path / "part", evals={}))
    _assert_same(whole.params, continued.params)
    _assert_same(whole.collections["nnx"], continued.collections["nnx"])


def test_state_of_an_nnx_run_is_read_back_from_its_folder(run_of_net):
    trainer, state = run_of_net
    read = kd.from_workdir.get_state(trainer.workdir)
    _assert_same(read.params, state.params)


#
# 16 bits
#


def test_nnx_model_computes_in_16_bits_and_keeps_32():
    model = knnx.MixedPrecision(model=Net())
    assert kontext.get_keypaths(model) == {"x": "batch.x"}
    variables = model.init(KEYS, X)
    _assert_same(variables, Net().init(KEYS, X))
    before = _values(variables)
    options = {"rngs": KEYS, "mutable": True, "capture_intermediates": True}
    apply = jax.jit(functools.partial(model.apply, **options))
    result, changed = apply(variables, X)
    assert changed["intermediates"]["block"]["hidden"][0].dtype == jnp.bfloat16
    assert result["y"].dtype == jnp.float32
    _assert_same(changed["params"], variables["params"])
    for old, new in zip(
        jax.tree.leaves(variables["nnx"]), jax.tree.leaves(changed["nnx"])
    ):
        assert old.dtype == new.dtype
    for old, new in zip(before, _values(variables)):
        np.testing.assert_array_equal(old, new)
    exact, near = (
        jax.jit(functools.partial(net.apply, is_training_property=False))(variables, X)
        for net in (Net(), model)
    )
    exact, near = np.asarray(exact["y"]), np.asarray(near["y"])
    np.testing.assert_allclose(near, exact, atol=0.05)
    assert not np.array_equal(near, exact)


def test_nnx_model_trains_in_16_bits(tmp_path):
    once = kd_cfg.ckpts.Checkpointer(save_interval_steps=12)
    cfg = _make_cfg(tmp_path, checkpointer=once, evals={})
    cfg.model = kd_cfg.contrib.knnx.MixedPrecision(model=cfg.model)
    _train(cfg)
    lines = writers.read_scalars(tmp_path / "train")
    losses = [line["values"].get("losses/l2") for line in lines]
    losses = [loss for loss in losses if loss is not None]
    assert losses[-1] < 0.8 * losses[0]


def test_wrappers_of_linen_refuse_nnx_models():
    with pytest.raises(TypeError, match=r"a Net.*kd\.contrib\.knnx\.MixedPrecision"):
        kd.nn.MixedPrecision(model=Net())
