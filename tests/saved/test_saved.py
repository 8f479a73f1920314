"""What earlier versions wrote can still be read: runs, configs, pickles."""

import pathlib
import pickle
import tarfile

import jax
import numpy as np
import pytest
from kauldron.konfig.immutabledict import ImmutableDict

from kauldron import kd, konfig, writers

SAVED = pathlib.Path(__file__).parent


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of six steps that stopped at the fourth, as the current folder's `run`."""
    with tarfile.open(SAVED / "run.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def test_run_continues_where_it_stopped(run):
    cfg = konfig.ConfigDict.from_json((run / "config.json").read_text())
    cfg.stop_after_steps = None
    trainer = konfig.resolve(cfg)
    state, _ = trainer.train()
    assert int(state.step) == 6
    lines = writers.read_scalars(run / "train")
    assert sorted({line["step"] for line in lines}) == [0, 2, 3, 4, 5]
    undisturbed, _ = trainer.replace(workdir="other").train()
    jax.tree.map(  # another version of jax may round differently
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        *(state.params, undisturbed.params),
    )


def test_run_is_loaded_for_a_look(run):
    trainer = kd.from_workdir.get_resolved(run)
    state = trainer.checkpointer.restore(trainer.init_state(), step=3)
    assert int(state.step) == 3
    assert set(trainer.evals) == {"test", "later"}


def test_reference_to_the_trainer_in_a_config():
    cfg = konfig.ConfigDict.from_json((SAVED / "inherited.json").read_text())
    reference = konfig.resolve(cfg.seed)
    assert reference == kd.utils.config_util.ROOT_CFG_REF.seed


def test_pickles():
    with (SAVED / "objects.pickle").open("rb") as file:
        values = pickle.load(file)
    assert values["frozen"] == ImmutableDict({"a": 1, "b": {"c": (2, 3)}})
    output = values["model"](np.ones((2, 4), np.float32))
    np.testing.assert_allclose(output, values["output"], rtol=1e-6)
