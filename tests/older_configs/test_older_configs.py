"""Configs as they are written for the existing library: they resolve and train."""

import dataclasses
import importlib.util
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from jax.experimental import checkify

from kauldron import kd, konfig, kxm, writers
from kauldron.cli import loading
from tests.older_configs import configargs_demo

with konfig.imports():
    from kauldron import kd as kd_cfg
    from tests.older_configs import arrays as arrays_cfg
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
    "tiny_vit_advanced",
    "vit_b_i1k",
]
FOLDER = pathlib.Path(__file__).parent
HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None


def _load(name, workdir, *flags):
    """Load a config as the command line does."""
    arguments = [f"--cfg={FOLDER / name}.py", *flags]
    source, _ = loading.source_from_arguments(arguments, "cfg")
    cfg = loading.load_config(source, import_nothing=False)
    cfg.workdir = str(workdir)
    return cfg


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory):
    """A folder of JPEG files."""
    folder = tmp_path_factory.mktemp("imagenet")
    arrays.write_imagenet(folder)
    return folder


@pytest.fixture(scope="module")
def autoencoder(tmp_path_factory):
    """The folder of a trained autoencoder."""
    workdir = tmp_path_factory.mktemp("autoencoder")
    _train(_load("mnist_autoencoder", workdir), steps=15)
    return workdir


def _train(cfg, *, steps, imagenet=None):
    """Train on small data in the place of the data sets."""
    return _small_trainer(cfg, steps=steps, imagenet=imagenet).train()


def _small_trainer(cfg, *, steps, imagenet=None):
    _replace_data(cfg, imagenet)
    cfg.num_train_steps = steps
    cfg.log_metrics_every = 1
    cfg.profiler = None
    return konfig.resolve(cfg)


def _nodes(cfg):
    """Every node of a config, with where it is: `parent[place]`."""
    places = range(len(cfg)) if isinstance(cfg, list) else list(cfg)
    for place in places:
        child = cfg[place]
        if isinstance(child, list | konfig.ConfigDict):
            yield cfg, place, child
            yield from _nodes(child)


def _replace_data(cfg, imagenet=None):
    """Replace every data set by a small one with the same transforms."""
    _leave_tensorflow(cfg)
    for parent, place, node in reversed(list(_nodes(cfg))):
        if getattr(node, "__qualname__", "").endswith("Tfds"):
            parent[place] = _small(node, imagenet)


def _leave_tensorflow(cfg):
    """Change `kd.data.tf` to `kd.data.py`: the names are the same."""
    for parent, place, node in reversed(list(_nodes(cfg))):
        name = getattr(node, "__qualname__", "")
        if "data.tf." in name:
            fields = {key: node[key] for key in node if key != "cache"}
            name = name.replace("data.tf.", "data.py.")
            parent[place] = konfig.ConfigDict({**fields, "__qualname__": name})


def _small(ds, imagenet):
    left_out = ("name", "split", "__qualname__")
    fields = {key: ds[key] for key in ds if key not in left_out}
    if ds.name == "imagenet2012":
        return kd_cfg.data.py.ImageFolder(str(imagenet), **fields)
    return kd_cfg.data.py.Arrays(getattr(arrays_cfg, ds.name), **fields)


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
    if not HAS_TENSORFLOW:
        _leave_tensorflow(cfg)
    text = cfg.to_json()
    again = konfig.ConfigDict.from_json(text)
    assert again.to_json() == text
    trainer = konfig.resolve(again)
    assert isinstance(trainer, kd.train.Trainer)


def _assert_loss_falls(workdir):
    losses = _losses(workdir)
    assert np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3])


def test_autoencoder_trains_and_its_loss_falls(autoencoder):
    _assert_loss_falls(autoencoder)


@pytest.mark.parametrize("name", ["mnist_autoencoder_sharded", "nnx_mnist"])
def test_config_trains_and_its_loss_falls(name, tmp_path):
    _train(_load(name, tmp_path), steps=15)
    _assert_loss_falls(tmp_path)


def test_readout_trains_on_the_frozen_model_of_a_run(tmp_path, autoencoder):
    cfg = _load("readout_mnist", tmp_path)
    _set_run(cfg, autoencoder)
    state, _ = _train(cfg, steps=15)
    _assert_loss_falls(tmp_path)
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


def test_arguments_of_a_config_change_what_it_is_made_of(tmp_path, imagenet):
    cfg = _load("configargs_demo", tmp_path, "--cfg.__args__.variant=mu/8")
    state, _ = _train(cfg, steps=2, imagenet=imagenet)
    encoder = state.params["encoder"]
    assert encoder["pos_embedding"]["embeddings"].shape == (16, 32)
    assert np.isfinite(_losses(tmp_path)).all()
    args = configargs_demo.ConfigArgs(mixed=False, batch_size=8)
    assert configargs_demo.get_config(args).train_ds.batch_size == 8


def test_sweep_over_arguments_makes_a_config_of_each():
    configs = kxm.sweep_configs(str(FOLDER / "configargs_demo.py"), ["", "mixed"])
    sizes = [(cfg.train_ds.batch_size, "datasets" in cfg.train_ds) for cfg in configs]
    assert sizes == [(8, True), (8, False), (16, True), (16, False)]


@pytest.mark.slow
def test_tiny_vit_trains_on_jpeg_files(tmp_path, imagenet):
    cfg = _load("tiny_vit_imagenet", tmp_path)
    _make_smaller(cfg)
    cfg.schedules.learning_rate.peak_value = 1e-2
    _train(cfg, steps=30, imagenet=imagenet)
    losses = _losses(tmp_path)
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])


def _make_smaller(cfg):
    cfg.model.num_classes = 3
    cfg.evals.val.num_batches = 1
    patch_size = cfg.model.encoder[0].partition("/")[2]
    cfg.model.encoder[0] = f"mu/{patch_size}"


def _load_advanced(workdir):
    cfg = _load("tiny_vit_advanced", workdir)
    _make_smaller(cfg)
    attention = cfg.train_metrics.attention[0]
    attention["values"] = attention["values"].replace("layers_11", "layers_0")
    return cfg


@pytest.mark.slow
def test_tiny_vit_trains_with_augmentation_checks_and_export(tmp_path, imagenet):
    trainer = _small_trainer(_load_advanced(tmp_path), steps=2, imagenet=imagenet)
    # A step that looks for NaNs everywhere would be compiled for ten seconds.
    checks = trainer.checkify_error_categories - checkify.nan_checks
    assert checks >= checkify.index_checks | checkify.div_checks
    trainer.replace(checkify_error_categories=checks).train()
    *_, last = writers.read_scalars(tmp_path / "train")
    assert np.isfinite(list(last["values"].values())).all()
    assert "metrics/attention" in last["values"]
    assert any(name.startswith("metrics/grads") for name in last["values"])
    assert list(tmp_path.rglob("*.jax_exported"))


def test_step_of_a_tiny_vit_can_make_all_checks(tmp_path, imagenet):
    trainer = _small_trainer(_load_advanced(tmp_path), steps=2, imagenet=imagenet)
    categories = trainer.checkify_error_categories
    assert categories == checkify.all_checks
    lowered = kd.inspect.lower_trainstep(
        trainer, return_metrics=True, checkify_error_categories=categories
    )
    assert lowered.out_info[1].error is not None


def test_config_with_resources_of_an_older_launcher_is_launched(tmp_path):
    file = FOLDER / "tiny_vit_advanced.py"
    text = _kauldron(
        "launch",
        f"--cfg={file}",
        "--cfg.xm_job.platform=cpu",
        "--cfg.evals.standalone.run.platform=cpu",
        f"--xp.root_dir={tmp_path}",
        "--xp.sweep=*",
        "--dry",
        cwd=tmp_path,
    )
    assert text.count("--eval_names=standalone") == 4


@pytest.mark.slow
def test_vit_b_trains_on_augmented_jpeg_files(tmp_path, imagenet):
    cfg = _load("vit_b_i1k", tmp_path)
    _make_smaller(cfg)
    cfg.evals.val.run.n = 3
    state, _ = _train(cfg, steps=3, imagenet=imagenet)
    assert state.params["encoder"]["cls"].shape == (32,)
    assert np.isfinite(_losses(tmp_path)).all()
    assert _losses(tmp_path, "val")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TENSORFLOW, reason="needs the extra kauldron[tf]")
def test_vit_b_trains_on_what_tensorflow_reads_and_augments(tmp_path, imagenet):
    import tensorflow as tf

    class Pictures(kd.data.tf.TFDataPipeline):
        def ds_for_current_process(self, rng):
            files = tf.data.Dataset.list_files(f"{imagenet}/*/*", seed=0).repeat()
            return files.map(self.read)

        def read(self, path):
            image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
            digit = tf.strings.substr(tf.strings.split(path, "/")[-2], -1, 1)
            label = tf.strings.to_number(digit, tf.int64)
            return {"image": image, "label": label, "path": path}

    cfg = _load("vit_b_i1k", tmp_path)
    _make_smaller(cfg)
    transforms = konfig.resolve(cfg.train_ds.transforms)
    trainer = _small_trainer(cfg, steps=3, imagenet=imagenet)
    ds = Pictures(batch_size=8, seed=0, transforms=transforms)
    dataclasses.replace(trainer, train_ds=ds).train()
    assert np.isfinite(_losses(tmp_path)).all()


def test_config_beside_the_one_it_imports_is_found_from_anywhere(tmp_path):
    file = FOLDER / "mnist_autoencoder_sharded.py"
    text = _kauldron("config", "show", f"--cfg={file}", cwd=tmp_path)
    assert "ShardingStrategy" in text and "FlatAutoencoder" in text


def _kauldron(*arguments, cwd):
    command = [sys.executable, "-m", "kauldron", *arguments]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout
