"""Configs as they are written for the existing library: they resolve and train."""

import importlib

import numpy as np
import pytest

from kauldron import kd, konfig, writers
from tests.older_configs import configargs_demo

with konfig.imports():
    from kauldron import kd as kd_cfg
    from tests.older_configs import arrays

NAMES = [
    "mnist_autoencoder",
    "mnist_autoencoder_sharded",
    "mnist_standalone_eval",
    "mnist_eval_only",
    "nnx_mnist",
    "readout_mnist",
    "train_evaluator",
    "configargs_demo",
    "tiny_vit_imagenet",
]


def _load(name, workdir):
    cfg = importlib.import_module(f"tests.older_configs.{name}").get_config()
    cfg.workdir = str(workdir)
    return cfg


@pytest.fixture(scope="module")
def autoencoder(tmp_path_factory):
    """The folder of a trained autoencoder."""
    workdir = tmp_path_factory.mktemp("autoencoder")
    _train(_load("mnist_autoencoder", workdir), steps=4)
    return workdir


def _train(cfg, *, steps):
    """Train on small arrays in the place of the data sets."""
    _replace_data(cfg)
    cfg.num_train_steps = steps
    cfg.log_metrics_every = 1
    cfg.profiler = None
    return konfig.resolve(cfg).train()


def _replace_data(cfg):
    """Replace every data set by a small one with the same transforms."""
    if isinstance(cfg, list):
        places = range(len(cfg))
    elif isinstance(cfg, konfig.ConfigDict):
        places = list(cfg)
    else:
        return
    for place in places:
        if getattr(cfg[place], "__qualname__", "").endswith("Tfds"):
            cfg[place] = _small(cfg[place])
        else:
            _replace_data(cfg[place])


def _small(ds):
    left_out = ("name", "split", "__qualname__")
    fields = {key: ds[key] for key in ds if key not in left_out}
    columns = arrays.mnist if ds.name == "mnist" else arrays.imagenet
    return kd_cfg.data.py.Arrays(columns, **fields)


def _set_run(cfg, workdir):
    """Give the folder of a run where the config has the id of an experiment."""
    with cfg.ignore_type():
        cfg.aux.xid = str(workdir)


def _losses(workdir, collection="train"):
    lines = writers.read_scalars(workdir / collection)
    values = [line["values"].get("losses/total") for line in lines]
    return [value for value in values if value is not None]


@pytest.mark.parametrize("name", NAMES)
def test_config_is_written_to_json_and_resolves_without_data(
    name, tmp_path, autoencoder
):
    cfg = _load(name, tmp_path / "run")
    if name == "readout_mnist":
        _set_run(cfg, autoencoder)
    if name == "mnist_eval_only":
        cfg.aux.workdir = str(autoencoder)
    text = cfg.to_json()
    again = konfig.ConfigDict.from_json(text)
    assert again.to_json() == text
    trainer = konfig.resolve(again)
    assert isinstance(trainer, kd.train.Trainer)


@pytest.mark.parametrize(
    "name", ["mnist_autoencoder", "mnist_autoencoder_sharded", "nnx_mnist"]
)
def test_config_trains_and_its_loss_falls(name, tmp_path):
    _train(_load(name, tmp_path), steps=15)
    losses = _losses(tmp_path)
    assert np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3])


def test_readout_trains_on_the_frozen_model_of_a_run(tmp_path, autoencoder):
    cfg = _load("readout_mnist", tmp_path)
    _set_run(cfg, autoencoder)
    state, _ = _train(cfg, steps=15)
    losses = _losses(tmp_path)
    assert np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3])
    frozen = kd.from_workdir.get_state(autoencoder).params
    np.testing.assert_array_equal(
        state.params["model"]["encoder"]["kernel"], frozen["encoder"]["kernel"]
    )


def test_readout_of_no_run_names_the_unset_field(tmp_path):
    with pytest.raises(Exception, match=r"aux\.xid"):
        konfig.resolve(_load("readout_mnist", tmp_path))


def test_train_evaluator_needs_no_run_for_its_readout(tmp_path):
    cfg = _load("train_evaluator", tmp_path)
    _replace_data(cfg.evals.readout.readout_config)
    cfg.evals.readout.run.n = 2
    cfg.evals.readout.readout_config.num_train_steps = 3
    _train(cfg, steps=2)
    assert any(path.name.startswith("readout.") for path in tmp_path.iterdir())


def test_evaluation_alone_reads_the_run(tmp_path, autoencoder):
    cfg = _load("mnist_eval_only", tmp_path)
    cfg.aux.workdir = str(autoencoder)
    _replace_data(cfg)
    trainer = konfig.resolve(cfg)
    trainer.continuous_eval(list(trainer.evals))
    assert _losses(tmp_path, "test")


def test_standalone_evaluations_follow_the_checkpoints(tmp_path):
    cfg = _load("mnist_standalone_eval", tmp_path)
    cfg.checkpointer.save_interval_steps = 2
    _train(cfg, steps=4)
    trainer = konfig.resolve(cfg)
    trainer.continuous_eval(list(trainer.evals))
    [*_, last] = writers.read_scalars(tmp_path / "standalone_test")
    assert last["step"] == 4
    assert "metrics/ssim" in last["values"]
    assert _losses(tmp_path, "standalone_train")


def test_arguments_of_a_config_change_what_it_is_made_of(tmp_path):
    cfg = configargs_demo.get_config()
    cfg.workdir = str(tmp_path)
    state, _ = _train(cfg, steps=2)
    assert state.params["encoder"]["kernel"].shape == (16 * 16, 32)
    args = configargs_demo.ConfigArgs(mixed=False, batch_size=8)
    assert configargs_demo.get_config(args).train_ds.batch_size == 8


@pytest.mark.slow
def test_tiny_vit_trains_on_augmented_images(tmp_path):
    cfg = _load("tiny_vit_imagenet", tmp_path)
    cfg.model.num_classes = 3
    cfg.model.encoder[0] = "mu/8"  # smaller still
    _train(cfg, steps=3)
    assert np.isfinite(_losses(tmp_path)).all()
