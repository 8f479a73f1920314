"""Every example trains a few steps, as a user would start it."""

import json
import pathlib
import struct

import jax
import numpy as np
import pytest

from kauldron import main, writers
from tests import compilation
from tests.ckpts.test_weight_files import write_safetensors

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
FEW_STEPS = ("--cfg.num_train_steps=3", "--cfg.log_metrics_every=1")


def _train(name, workdir, *flags):
    return main.main(
        [
            "train",
            f"--cfg={EXAMPLES / name}",
            f"--cfg.workdir={workdir}",
            "--cfg.profiler=None",
            *flags,
        ]
    )


@pytest.fixture
def compiled_soon():
    """Compiling as for users would take longer than it saves."""
    compilation.compile_quickly(True)
    yield
    compilation.compile_quickly(False)


@pytest.fixture
def compiled_in_one_piece():
    """Compiled well, as programs that run often should be, but with less work."""
    compilation.compile_quickly(True)
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_xla_profile_version", 2)  # never mixed with others
    yield
    compilation.compile_quickly(False)


@pytest.mark.usefixtures("compiled_soon")
@pytest.mark.parametrize(
    "name",
    [
        "sharded.py",
        "custom_step.py",
        "configargs.py",
        "configargs.py:width=8,optimizer=sgd",
        "vit_b16.py:variant=mu/8,size=16,batch_size=4",
        "vit_b16.py:variant=mu/8,size=16,batch_size=4,scan_layers=True,remat=True",
    ],
)
def test_example_trains_a_few_steps(name, tmp_path):
    _train_a_few_steps(name, tmp_path)


@pytest.mark.usefixtures("compiled_soon")
def test_language_model_writes_samples_at_evaluation(tmp_path):
    small = ("width=16", "num_layers=1", "num_heads=2")
    _train_a_few_steps(
        "char_lm.py",
        tmp_path,
        *(f"--cfg.model.{setting}" for setting in small),
        "--cfg.evals.samples.run.n=3",
        "--cfg.eval_ds.batch_size=8",
    )
    texts = _read_texts(tmp_path / "samples")
    assert set(texts) == {f"summaries/texts/{number}" for number in range(4)}
    assert all("|" in text for steps in texts.values() for text in steps)


def _read_texts(folder):
    """Texts of an event file by their names."""
    from tensorboard.backend.event_processing import event_accumulator

    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        name.removesuffix("/text_summary"): [
            value.decode()
            for event in events.Tensors(name)
            for value in event.tensor_proto.string_val
        ]
        for name in events.Tags()["tensors"]
    }


@pytest.mark.usefixtures("compiled_soon")
def test_gan_example_logs_the_loss_of_each_player(tmp_path):
    last = _train_a_few_steps("gan_multi_optimizer.py", tmp_path)
    assert {"losses/discriminator", "losses/generator"} <= set(last)


def _train_a_few_steps(name, workdir, *flags):
    """Train, and return the last values."""
    assert _train(name, workdir, *FEW_STEPS, *flags) == 0
    assert json.loads((workdir / "train_complete.txt").read_text())["step"] == 3
    lines = writers.read_scalars(workdir / "train")
    losses = [line["values"].get("losses/total") for line in lines]
    assert np.isfinite([loss for loss in losses if loss is not None]).all()
    return lines[-1]["values"]


def _write_idx(path, array):
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim)
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + sizes + array.tobytes())


@pytest.mark.usefixtures("compiled_soon")
def test_fashion_mnist_example_trains_on_files_of_that_form(tmp_path):
    rng = np.random.default_rng(0)
    for part, count in (("train", 512), ("t10k", 1000)):
        images = rng.integers(0, 255, (count, 28, 28)).astype(np.uint8)
        _write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
    name = f"fashion_mnist_autoencoder.py:folder={tmp_path}"
    assert _train(name, tmp_path / "run", *FEW_STEPS) == 0


def test_fashion_mnist_example_says_where_the_data_come_from(tmp_path, capsys):
    name = f"fashion_mnist_autoencoder.py:folder={tmp_path}/absent"
    assert _train(name, tmp_path / "run") == 2
    assert "dataset-fashion-mnist" in capsys.readouterr().err


def _write_timm_weights(path, *, size, hidden, mlp):
    """A file with the names and shapes of timm's ViT of one layer."""
    rng = np.random.default_rng(0)
    shapes = {
        "cls_token": (1, 1, hidden),
        "pos_embed": (1, 1 + (size // 8) ** 2, hidden),
        "patch_embed.proj.weight": (hidden, 3, 8, 8),
        "patch_embed.proj.bias": (hidden,),
        "blocks.0.attn.qkv.weight": (3 * hidden, hidden),
        "blocks.0.attn.qkv.bias": (3 * hidden,),
        "blocks.0.attn.proj.weight": (hidden, hidden),
        "blocks.0.attn.proj.bias": (hidden,),
        "blocks.0.mlp.fc1.weight": (mlp, hidden),
        "blocks.0.mlp.fc1.bias": (mlp,),
        "blocks.0.mlp.fc2.weight": (hidden, mlp),
        "blocks.0.mlp.fc2.bias": (hidden,),
        "head.weight": (1000, hidden),
        "head.bias": (1000,),
    }
    for norm in ("blocks.0.norm1", "blocks.0.norm2", "norm"):
        shapes |= {f"{norm}.weight": (hidden,), f"{norm}.bias": (hidden,)}
    arrays = {n: 0.1 * rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    return write_safetensors(path, arrays)


@pytest.mark.usefixtures("compiled_soon")
@pytest.mark.parametrize("only_head", [False, True])
def test_finetuning_starts_from_a_file_of_another_library(only_head, tmp_path):
    path = tmp_path / "model.safetensors"
    _write_timm_weights(path, size=32, hidden=32, mlp=128)
    name = f"finetune_vit.py:path={path},variant=mu/8,size=16,only_head={only_head}"
    workdir = tmp_path / "run"
    assert _train(name, workdir, *FEW_STEPS, "--cfg.evals={}") == 0
    assert json.loads((workdir / "train_complete.txt").read_text())["step"] == 3


def _last_test_values(name, workdir):
    """Train an example to its end, and return the values of its last evaluation.

    Nothing is logged along the way, so that one program is compiled, not two.
    """
    assert _train(name, workdir, "--cfg.log_metrics_every=None") == 0
    [*_, last] = writers.read_scalars(workdir / "test")
    done = json.loads((workdir / "train_complete.txt").read_text())
    assert done["step"] == last["step"]
    return last["values"]


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_in_one_piece")
def test_tiny_vit_reaches_95_percent(tmp_path):
    values = _last_test_values("tiny_vit_digits.py", tmp_path)
    assert values["metrics/accuracy"] > 0.95


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_soon")
def test_classifier_reaches_97_percent(tmp_path):
    values = _last_test_values("digits_classifier.py", tmp_path)
    assert values["metrics/accuracy"] >= 0.97


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_soon")
def test_autoencoder_comes_within_a_tenth_of_pca(tmp_path):
    from sklearn import datasets, decomposition

    values = _last_test_values("digits_autoencoder.py", tmp_path)
    images = datasets.load_digits().data / 16
    train, test = images[:1500], images[1500:]
    pca = decomposition.PCA(16).fit(train)
    error = np.mean((pca.inverse_transform(pca.transform(test)) - test) ** 2)
    assert values["losses/recon"] <= 1.1 * error


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_in_one_piece")
def test_nnx_classifier_reaches_97_percent(tmp_path):
    values = _last_test_values("nnx_digits.py", tmp_path)
    assert values["metrics/accuracy"] >= 0.97
