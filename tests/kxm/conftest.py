"""A registry of experiments for each test, and programs to launch."""

import sys

import pytest

from kauldron import kxm

# Counts until a file exists; on SIGTERM it saves its count, exits 143, and goes on from there.
PRETEND_TRAINER = """
import os, pathlib, signal, sys, time
flags = dict(a.removeprefix("--").split("=", 1) for a in sys.argv[1:])
folder = pathlib.Path(flags["out"])
folder.mkdir(parents=True, exist_ok=True)
saved = folder / "count"
count = int(saved.read_text()) if saved.exists() else 0
print("starts at", count, flush=True)
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
(folder / "ready").touch()
release = pathlib.Path(flags["until"]) if "until" in flags else folder
while count < 3 or not release.exists():
    count += 1
    time.sleep(0.01)
    if stopped:
        saved.write_text(str(count))
        print("saved", count, flush=True)
        sys.exit(143)
saved.write_text(str(count))
print("done", flush=True)
"""


@pytest.fixture(autouse=True)
def registry(tmp_path, monkeypatch):
    """Experiments of a test are registered and stored in its own folder."""
    monkeypatch.setenv("KAULDRON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KAULDRON_ROOT_DIR", str(tmp_path / "runs"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home" / "xids"


@pytest.fixture
def trainer(tmp_path):
    """The path of a program that saves when it is told to stop."""
    path = tmp_path / "trainer.py"
    path.write_text(PRETEND_TRAINER)
    return str(path)


@pytest.fixture
def python_job():
    """Make a job that runs a piece of Python."""

    def make(code, **params):
        return kxm.Job(target=[sys.executable, "-c", code], **params)

    return make


@pytest.fixture
def config(tmp_path):
    """Write a config file of a trainer and return its path."""

    def write(body="", name="config.py", sweeps=""):
        text = CONFIG.replace("# BODY", "\n    ".join(body.splitlines())) + sweeps
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


CONFIG = """
from kauldron import konfig

with konfig.imports():
    from flax import linen as nn
    from kauldron import kd
    from kauldron import kxm
    import optax


def get_config():
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 3
    cfg.aux = {"lr": 0.1, "tag": "a", "sizes": (1, 2), "nothing": None}
    cfg.model = nn.Dense(features=4)
    cfg.optimizer = optax.adam(learning_rate=cfg.ref.aux.lr)
    # BODY
    return cfg
"""
