"""Pipelines as parts of a trainer and of its config."""

import dataclasses
import functools
import shutil
import sys

import grain
import jax
import numpy as np
import optax
import pytest
from absl import flags
from flax import linen as nn

from kauldron import kd, konfig, kontext, writers
from kauldron.train import problems
from tests.evals import experiments

NUMBERS = np.random.default_rng(0).normal(size=64).astype(np.float32)


class Line(nn.Module):
    """One weight."""

    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        return {"y": nn.Dense(1, name="dense")(x[:, None])}


def make_arrays(**kwargs):
    kwargs = {"shuffle": True, "batch_size": 8} | kwargs
    return kd.data.py.Arrays({"x": NUMBERS}, **kwargs)


def make_trainer(**kwargs):
    return kd.train.Trainer(seed=42, train_ds=make_arrays(**kwargs))


def test_the_trainer_gives_its_seed_to_data_that_has_none():
    trainer = make_trainer()
    assert trainer.train_ds.seed == 42
    assert dataclasses.replace(trainer, seed=1).train_ds.seed == 1


def test_a_seed_of_the_data_stays():
    trainer = make_trainer(seed=7)
    assert trainer.train_ds.seed == 7
    assert dataclasses.replace(trainer, seed=1).train_ds.seed == 7


@pytest.mark.filterwarnings("ignore:`ShardingStrategy.ds`:DeprecationWarning")
@pytest.mark.parametrize("which", ["batch", "ds", None])
def test_batches_are_placed_as_the_trainer_says(which):
    trainer = make_trainer()
    expected = [b["x"].tolist() for b in trainer.train_ds.take(2)]
    arguments = [getattr(trainer.sharding, which)] if which else []
    batches = list(trainer.train_ds.take(2).device_put(*arguments))
    for batch, values in zip(batches, expected, strict=True):
        assert isinstance(batch["x"], jax.Array)
        assert batch["x"].sharding == kd.sharding.FIRST_DIM
        assert batch["x"].tolist() == values


def test_a_spec_data_set_is_enough_to_make_the_state():
    spec = {"x": kd.data.ArraySpec((8,), np.float32)}
    trainer = kd.train.Trainer(
        train_ds=kd.data.ElementSpecDataset(spec),
        model=Line(),
        optimizer=optax.sgd(0.1),
    )
    assert trainer.init_state().params["dense"]["kernel"].shape == (1, 1)
    assert trainer.train_ds.element_spec == spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn(kd.data.Pipeline):
    """Batches that JAX computes."""

    def __iter__(self):
        key = jax.random.key(self.effective_seed)
        while True:
            key, now = jax.random.split(key)
            yield {"x": np.asarray(jax.random.normal(now, (self.batch_size,)))}


@pytest.mark.parametrize(
    "shapes_of",
    [
        lambda trainer: trainer.state_specs,
        lambda trainer: jax.eval_shape(trainer.init_state),
        lambda trainer: kd.testing.assert_step_specs(trainer),
        lambda trainer: trainer.context_specs,
    ],
    ids=["state_specs", "eval_shape", "assert_step_specs", "context_specs"],
)
@pytest.mark.parametrize("mapped", [False, True])
def test_data_that_computes_its_spec_is_not_traced_with_the_model(shapes_of, mapped):
    ds = Drawn(batch_size=8, seed=0)
    if mapped:
        ds = ds.map(jax.jit(lambda batch: {"x": batch["x"] + 1}))
    trainer = kd.train.Trainer(
        train_ds=ds,
        model=Line(),
        optimizer=optax.sgd(0.1),
        train_losses={"l": kd.losses.L2(preds="preds.y", targets="preds.y")},
    )
    shapes = shapes_of(trainer)
    assert shapes.params["dense"]["kernel"].shape == (1, 1)


def make_in_memory(**kwargs):
    return kd.data.InMemoryPipeline(loader=lambda: {"x": NUMBERS}, **kwargs)


def make_mix(**kwargs):
    parts = [make_arrays(batch_size=None) for _ in range(2)]
    return kd.data.py.Mix(parts, **kwargs)


@pytest.mark.parametrize("make", [make_arrays, make_in_memory, make_mix])
@pytest.mark.parametrize("change", [lambda ds: ds, lambda ds: ds.take(3).prefetch(1)])
def test_training_on_single_records_is_refused(tmp_path, make, change):
    trainer = kd.train.Trainer(
        workdir=tmp_path,
        train_ds=change(make(batch_size=0)),
        model=Line(),
        optimizer=optax.sgd(0.1),
        train_losses={"l": kd.losses.L2(preds="preds.y", targets="preds.y")},
        num_train_steps=2,
    )
    with pytest.raises(ValueError, match=r"^cfg\.train_ds: `batch_size=0`"):
        trainer.train()


def test_evaluating_single_records_is_refused():
    trainer = kd.train.Trainer(
        train_ds=make_arrays(),
        eval_ds=make_arrays(batch_size=0),
        evals={
            "inherits": kd.evals.Evaluator(run=kd.evals.EveryNSteps(1)),
            "own": kd.evals.Evaluator(
                run=kd.evals.EveryNSteps(1), ds=make_arrays(batch_size=0)
            ),
        },
    )
    found = [problem.path for problem in problems.check_batch_sizes(trainer)]
    assert found == ["eval_ds", "evals.own.ds"]


class Rows(kd.data.py.PyGrainPipeline):
    """Rows of numbers, made by grain."""

    def ds_for_current_process(self, rng):
        return grain.MapDataset.source(NUMBERS).batch(8)


@pytest.mark.parametrize(
    "train_ds",
    [
        make_arrays(),
        make_arrays(batch_size=None),
        make_arrays(batch_size=0, transforms=[grain.transforms.Batch(8)]),
        make_in_memory(batch_size=0, transforms=[grain.transforms.Batch(8)]),
        make_arrays(batch_size=0).map(lambda record: {"x": record["x"][None]}),
        Rows(batch_size=0),
        kd.data.ElementSpecDataset({"x": kd.data.ArraySpec((8,), np.float32)}),
    ],
)
def test_data_that_is_batched_in_some_way_is_not_refused(train_ds):
    assert not list(problems.check_batch_sizes(kd.train.Trainer(train_ds=train_ds)))


def test_evaluating_an_earlier_run_needs_its_spec_and_no_tensorflow(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # cannot be imported
    konfig.resolve(experiments.make_cfg(tmp_path / "run", num_train_steps=1)).train()
    cfg = experiments.kd.train.Trainer.eval_only(
        evals={
            "all": experiments.kd.evals.Evaluator(
                run=experiments.kd.evals.StandaloneLastCheckpoint(),
                ds=experiments.eval_data(),
            )
        }
    )
    cfg.aux.workdir = str(tmp_path / "run")
    cfg.workdir = str(tmp_path / "eval")
    trainer = konfig.resolve(cfg)
    assert isinstance(trainer.train_ds, kd.data.ElementSpecDataset)
    assert trainer.train_ds.element_spec == trainer.evals["all"].ds.element_spec
    (batch,) = trainer.train_ds
    assert not batch["x"].any()
    assert trainer.init_state().params["dense"]["kernel"].shape == (4, 2)


CONFIG = """
from kauldron import konfig

with konfig.imports():
    from kauldron import kd

def get_config():
    cfg = kd.train.Trainer()
    cfg.train_ds = kd.data.py.Arrays(
        {"x": [0, 255]},
        shuffle=False,
        num_epochs=1,
        transforms={
            "z_scale": kd.data.ValueRange(key="x", vrange=(0, 1)),
            "a_cast": kd.data.Cast(key="x", dtype="int32"),
        },
    )
    return cfg
"""


def test_a_flag_overrides_a_transform_by_name_and_the_order_stays(tmp_path):
    (tmp_path / "config.py").write_text(CONFIG)
    values = flags.FlagValues()
    flag = konfig.DEFINE_config_file("cfg", flag_values=values)
    values(
        [
            "program",
            f"--cfg={tmp_path / 'config.py'}",
            "--cfg.train_ds.transforms.z_scale.vrange=(-5,5)",
        ]
    )
    again = konfig.ConfigDict.from_json(flag.value.to_json())
    for cfg in (flag.value, again):
        ds = konfig.resolve(cfg).train_ds
        assert list(ds.transforms) == ["z_scale", "a_cast"]
        assert [record["x"].tolist() for record in ds] == [-5, 5]


# ----------------------------------------------------------------------------
# Going on
# ----------------------------------------------------------------------------


def make_ds(kind, **kwargs):
    kwargs = {"shuffle": True, "batch_size": 8} | kwargs
    columns = {"x": NUMBERS, "zero": np.zeros_like(NUMBERS)}
    if kind == "arrays":
        return kd.data.py.Arrays(columns, **kwargs)
    records = [{"x": x, "zero": zero} for x, zero in zip(*columns.values())]
    return kd.data.py.DataSource(records, **kwargs)


@functools.cache
def trainer_of_squares():
    return kd.train.Trainer(
        seed=3,
        model=Line(),
        train_losses={"square": kd.losses.L2(preds="batch.x", targets="batch.zero")},
        optimizer=optax.sgd(0.1),
        log_metrics_every=1,
        log_summaries_every=None,
        profiler=None,
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=100),
    )


def train(workdir, ds, num_steps):
    """Train up to some step; the mean square of each batch that was used, by step."""
    trainer_of_squares().replace(
        workdir=str(workdir), train_ds=ds, num_train_steps=num_steps
    ).train()
    return {
        line["step"]: line["values"]["losses/square"]
        for line in writers.read_scalars(workdir / "train")
        if "losses/square" in line["values"]
    }


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The workdir of three steps, to be copied."""
    workdir = tmp_path_factory.mktemp("begun")
    train(workdir, make_ds("arrays"), 3)
    return workdir


@pytest.mark.parametrize(
    "kind, changes",
    [
        ("arrays", {}),
        ("arrays", {"batch_size": 16}),
        ("records", {"prefetch_batches": 0}),
        ("records", {"num_workers": 1, "batch_size": 4}),
    ],
)
def test_a_trainer_goes_on_with_the_next_record(tmp_path, begun, kind, changes):
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    used = train(tmp_path, make_ds(kind, **changes), 6)
    stream = np.concatenate([b["x"] for b in make_ds("arrays", seed=3).take(20)])
    size = changes.get("batch_size", 8)
    starts = [0, 8, 16] + [24 + size * i for i in range(3)]
    sizes = [8] * 3 + [size] * 3
    expected = [
        np.mean(stream[start : start + size] ** 2) for start, size in zip(starts, sizes)
    ]
    assert sorted(used) == list(range(6))
    np.testing.assert_allclose([used[step] for step in range(6)], expected, rtol=1e-5)
