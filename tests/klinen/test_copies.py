"""Copies and pickles of models and handles."""

import copy
import pickle
import subprocess
import sys

import jax
import pytest

from tests.klinen.toy import (
    MLP,
    AutoEncoder,
    Normed,
    SetupNet,
    X,
    assert_same,
    auto_encoder,
)

DUPLICATES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}

WHICH = (
    "model",
    "eval",
    "typed keys",
    "handle",
    "statistics",
    "setup",
    "params only",
    "rbg",
)


def _models():
    typed = auto_encoder().with_rng({"dropout": jax.random.key(3)})
    rbg = {"dropout": jax.random.key(3, impl="rbg")}
    setup = AutoEncoder(encoder=SetupNet(), decoder=MLP()).init_bind(0, X)
    return {
        "model": auto_encoder().with_rng(1),
        "eval": auto_encoder().eval(),
        "typed keys": typed,
        "handle": auto_encoder().with_rng(1).decoder,
        "statistics": Normed().init_bind(0, X),
        "setup": setup.with_rng(2).encoder.trunk,
        "params only": auto_encoder().with_rng(1).param_tree_on(),
        "rbg": auto_encoder().with_rng(rbg),
    }


@pytest.fixture(scope="module")
def models():
    return _models()


@pytest.mark.parametrize("how", DUPLICATES)
@pytest.mark.parametrize("which", WHICH)
def test_copies_compute_the_same(which, how, models):
    model = models[which]
    duplicate = DUPLICATES[how](model)
    assert duplicate is not model
    assert type(duplicate) is type(model)
    assert duplicate.unbind()[0] == model
    assert duplicate.training == model.training
    assert_same(duplicate.params, model.params)
    assert {k: v.dtype for k, v in duplicate.rngs.items()} == {
        k: v.dtype for k, v in model.rngs.items()
    }
    assert_same(duplicate(X), model(X))
    if which != "params only":
        assert jax.tree.structure(duplicate) == jax.tree.structure(model)


def test_a_pickle_is_read_by_another_process(tmp_path):
    model = auto_encoder().with_rng(1)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    script = (
        "import pickle, sys\n"
        "from tests.klinen.toy import X\n"
        "model = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(float(model(X).sum()), model.training, sorted(model.rngs))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model.pkl")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout.split()[0]) == pytest.approx(
        float(model(X).sum()), rel=1e-4
    )
    assert done.stdout.split()[1:] == ["True", "['default',", "'dropout']"]
