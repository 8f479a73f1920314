"""Trainers on eight devices; run by `test_several_devices.py` in a process of its own."""

import contextlib
import dataclasses
import functools
import logging
import re
import shutil

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from kauldron import kd
from kauldron.train import programs
from tests.train.toy import Linear, make_byte_ds, make_ds, make_trainer

NUM_STEPS = 8


def _single():
    """Everything on the first device."""
    mesh = Mesh(np.asarray(jax.devices()[:1]), ("devices",))
    one = NamedSharding(mesh, P())
    return kd.sharding.ShardingStrategy(batch=one, params=one, aux=one)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneDevice(kd.sharding.ShardingStrategy):
    """Also the step counter lives on the first device."""

    @property
    def state(self):
        return super().state.replace(step=self.params)


def _two_axes():
    """Batches over one axis of a mesh, a parameter over the other."""
    mesh = Mesh(np.asarray(jax.devices()).reshape(4, 2), ("data", "model"))
    replicated = NamedSharding(mesh, P())

    def rule(params):
        return jax.tree.map(
            lambda p: (
                NamedSharding(mesh, P(None, "model")) if p.ndim == 2 else replicated
            ),
            params,
        )

    return kd.sharding.ShardingStrategy(
        batch=NamedSharding(mesh, P("data")),
        params=rule,
        collections=replicated,
        aux=replicated,
    )


def _one():
    single = _single()
    return OneDevice(batch=single.batch, params=single.params, aux=single.aux)


STRATEGIES = {
    "one device": _one,
    "data parallel": kd.sharding.ShardingStrategy,
    "fsdp": lambda: kd.sharding.ShardingStrategy(
        params=kd.sharding.FSDPSharding(min_size_to_shard_mb=0)
    ),
    "two axes": _two_axes,
}


@functools.cache
def _first(strategy, rate):
    """All trainers of a strategy have the same step, or the same without dropout.

    Dropout makes the program of a step four times as long.
    """
    return make_trainer(
        "unused",
        sharding=STRATEGIES[strategy](),
        model=Linear(x="batch.x", rate=rate, size=16),
        train_ds=make_ds(size=16),
    )


def _make(workdir, strategy, *, rate=0.3, **changes):
    kwargs = {
        "workdir": str(workdir),
        "num_train_steps": NUM_STEPS,
        "log_metrics_every": 1,  # all steps are one program
        "writer": None,
        "checkpointer": kd.ckpts.Checkpointer(save_interval_steps=5),
        "evals": {
            "eval": kd.evals.Evaluator(
                run=kd.evals.Final(free_memory=False),
                ds=make_ds(num_epochs=1, size=16, batch_size=40),
            )
        },
    }
    return _first(strategy, rate).replace(**(kwargs | changes))


def _assert_close(a, b):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(
            np.asarray(x, np.float64), np.asarray(y, np.float64), rtol=2e-5, atol=1e-6
        ),
        a,
        b,
    )


@contextlib.contextmanager
def _traced():
    """Names of the evaluators whose steps are traced."""
    names = []
    step = kd.evals.Evaluator._step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            kd.evals.Evaluator,
            "_step",
            lambda self, *args: names.append(self.name) or step(self, *args),
        )
        yield names


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run on each kind of sharding: its workdir, final state, logged values.

    The last batch of its evaluation is short.
    """
    results = {}
    for strategy in STRATEGIES:
        workdir = tmp_path_factory.mktemp(strategy.replace(" ", "_"))
        with _traced() as traced:
            state, aux = _make(workdir, strategy).train()
        assert traced == ["eval"]
        results[strategy] = (workdir, state, aux.compute())
    return results


def test_there_are_eight_devices():
    assert jax.device_count() == 8


@pytest.mark.parametrize("strategy", ["data parallel", "fsdp", "two axes"])
def test_result_is_that_of_one_device(runs, strategy):
    _, expected, values = runs["one device"]
    _, state, other_values = runs[strategy]
    assert int(state.step) == NUM_STEPS
    _assert_close(jax.device_get(state), jax.device_get(expected))
    for name, value in values.loss_values.items():
        assert other_values.loss_values[name] == pytest.approx(float(value), rel=1e-4)


@pytest.mark.parametrize(
    ("strategy", "spec"),
    [
        ("data parallel", P()),
        ("fsdp", P(None, "devices")),
        ("two axes", P(None, "model")),
    ],
)
def test_parameters_and_their_moments_live_where_they_were_told(runs, strategy, spec):
    _, state, _ = runs[strategy]
    kernel = state.params["dense"]["kernel"]
    assert kernel.sharding.spec == spec
    assert len(kernel.sharding.device_set) == 8
    moment = state.opt_state[0].mu["dense"]["kernel"]
    assert moment.sharding.is_equivalent_to(kernel.sharding, kernel.ndim)


@pytest.mark.parametrize("strategy", ["data parallel", "fsdp"])
def test_specs_know_the_shardings_of_the_state(runs, tmp_path, strategy):
    specs = _make(tmp_path, strategy).state_specs
    _, state, _ = runs[strategy]
    shardings = jax.tree.map(
        lambda spec, x: spec.sharding.is_equivalent_to(x.sharding, x.ndim), specs, state
    )
    assert all(jax.tree.leaves(shardings))


def test_batches_are_divided_among_the_devices(tmp_path):
    trainer = _make(tmp_path, "data parallel")
    batch = next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))
    assert {shard.data.shape for shard in batch["x"].addressable_shards} == {(2, 4)}


@pytest.mark.parametrize(
    ("first", "second"),
    [("one device", "fsdp"), ("fsdp", "data parallel"), ("data parallel", "two axes")],
)
def test_checkpoint_continues_on_another_sharding(runs, tmp_path, first, second):
    saved = runs[first][0] / "checkpoints" / "ckpt_5"
    shutil.copytree(saved, tmp_path / "checkpoints" / "ckpt_5")
    state, _ = _make(tmp_path, second, evals={}).train()
    _assert_close(jax.device_get(state), jax.device_get(runs["one device"][1]))
    kernel = state.params["dense"]["kernel"]
    expected = runs[second][1].params["dense"]["kernel"]
    assert kernel.sharding.is_equivalent_to(expected.sharding, kernel.ndim)


def test_first_state_lives_where_later_ones_do(runs, tmp_path):
    first = _make(tmp_path, "fsdp").init_state()
    later = runs["fsdp"][1]
    same = jax.tree.map(
        lambda a, b: a.sharding.is_equivalent_to(b.sharding, a.ndim), first, later
    )
    assert all(jax.tree.leaves(same))


@pytest.mark.parametrize(  # steps that fill no group are calls of their own
    ("strategy", "size", "device_resident"),
    [("data parallel", 4, True), ("fsdp", 3, False)],
)
def test_grouped_steps_agree_on_several_devices(
    runs, tmp_path, strategy, size, device_resident
):
    state, _ = _make(
        tmp_path,
        strategy,
        steps_per_dispatch=size,
        log_metrics_every=None,
        checkpointer=None,
        evals={},
        train_ds=make_ds(size=16, device_resident=device_resident),
    ).train()
    _assert_close(jax.device_get(state), jax.device_get(runs["one device"][1]))


@pytest.fixture(scope="module")
def transformed_on_host(tmp_path_factory):
    """The final state of a run whose batches are made on the host."""
    state, _ = _make(
        tmp_path_factory.mktemp("on_host"),
        "data parallel",
        rate=0.0,
        checkpointer=None,
        evals={},
        train_ds=make_byte_ds(size=16, device_transforms=False),
    ).train()
    return jax.device_get(state)


@pytest.mark.parametrize(
    ("strategy", "steps"), [("data parallel", 1), ("fsdp", 4), ("two axes", 4)]
)
def test_transforms_on_several_devices_agree_with_those_on_the_host(
    tmp_path, transformed_on_host, strategy, steps
):
    ds = make_byte_ds(size=16, device_transforms=True)
    trainer = _make(
        tmp_path,
        strategy,
        rate=0.0,
        steps_per_dispatch=steps,
        log_metrics_every=None,
        checkpointer=None,
        evals={"eval": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4))},
        train_ds=ds,
        eval_ds=dataclasses.replace(ds, num_epochs=1, batch_size=40),
    )
    with _traced() as traced:
        state, _ = trainer.train()
    assert traced == ["eval"]
    _assert_close(jax.device_get(state), transformed_on_host)


def test_batch_that_cannot_be_divided_names_the_batch_size(tmp_path):
    trainer = _make(tmp_path, "data parallel", train_ds=make_ds(size=16, batch_size=12))
    with pytest.raises(ValueError, match=r"8 devices.*`cfg.train_ds.batch_size`"):
        trainer.train()


@pytest.fixture
def compiled():
    """Names of the programs that are compiled."""
    names = []

    class Handler(logging.Handler):
        def emit(self, record):
            found = re.search(r"XLA compilation of jit\((\w+)\)", record.getMessage())
            if found:
                names.append(found[1])

    logger, handler = logging.getLogger("jax"), Handler()
    logger.addHandler(handler)
    with jax.log_compiles():
        yield names
    logger.removeHandler(handler)


class Normalized(Linear):
    """Has batch statistics, which no sharding is given for."""

    @nn.compact
    def __call__(self, x):
        x = nn.BatchNorm(use_running_average=False)(x)
        return {"y": nn.Dense(self.size, name="dense")(x)}


@pytest.mark.parametrize("optimizer", [optax.adam(1e-2), optax.adafactor(1e-2)])
def test_what_no_sharding_is_given_for_is_replicated_from_the_start(
    tmp_path, compiled, optimizer
):
    trainer = _make(
        tmp_path,
        "fsdp",
        model=Normalized(x="batch.x", size=16),
        optimizer=optimizer,
        num_train_steps=2,
        checkpointer=None,
        evals={},
    )
    specs = trainer.state_specs
    assert compiled == []
    assert {leaf.sharding for leaf in jax.tree.leaves(specs.collections)} == {
        kd.sharding.REPLICATED
    }
    state, _ = trainer.train()
    assert compiled.count("run_step") == 1
    for spec, leaf in zip(jax.tree.leaves(specs), jax.tree.leaves(state)):
        assert leaf.sharding.is_equivalent_to(spec.sharding, leaf.ndim)


def test_no_device_ever_holds_a_sharded_parameter_as_a_whole(tmp_path, monkeypatch):
    sizes = []
    compile_ = programs._compile

    def compile_and_look(program):
        jitted = compile_(program)

        def run(*raw):
            memory = jitted.lower(*raw).compile().memory_analysis()
            sizes.append(memory.temp_size_in_bytes + memory.output_size_in_bytes)
            return jitted(*raw)

        return run

    compile_and_look.__wrapped__ = compile_.__wrapped__
    monkeypatch.setattr(programs, "_compile", compile_and_look)
    ds = make_ds(size=4096)
    trainer = _make(tmp_path, "fsdp", model=Linear(x="batch.x", size=4096), train_ds=ds)
    kernel = trainer.init_state().params["dense"]["kernel"]
    assert kernel.sharding.spec == P(None, "devices")
    assert sizes
    assert max(sizes) < kernel.nbytes
