"""A klinen module as the model of a trainer."""

import dataclasses
import pathlib

import flax.linen as nn
import jax
import numpy as np
import pytest

from kauldron import kd, kontext, writers
from kauldron import klinen as knn
from tests.train.toy import make_arrays, make_ds, make_trainer


class Encoder(knn.Module):
    """Layers whose outputs are kept, and dropout that follows the mode."""

    childs: list
    outputs: knn.Intermediate[list] = dataclasses.field(
        init=False, default_factory=list
    )

    def __call__(self, x):
        for child in self.childs:
            x = child(x)
            self.outputs.append(x)
        return x


class Regressor(knn.Module):
    """A klinen model with keys for its inputs."""

    encoder: nn.Module
    x: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, x):
        modes.append(self.training)
        return {"y": nn.Dense(2, name="dense")(self.encoder(x))}


modes: list[bool] = []


def _model():
    return Regressor(
        encoder=Encoder([knn.Dropout(0.25), nn.Dense(8), kd.nn.Dropout(0.25)]),
        x="batch.x",
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    trainer = make_trainer(
        tmp_path_factory.mktemp("run"),
        model=_model(),
        num_train_steps=30,
        train_summaries={},
        train_metrics={
            "norm": kd.metrics.Norm(tensor="interms.encoder.outputs[1]"),
        },
        evals={
            "test": kd.evals.Evaluator(
                run=kd.evals.EveryNSteps(10), ds=make_ds(shuffle=False, num_epochs=1)
            )
        },
    )
    modes.clear()
    state, _ = trainer.train()
    return trainer, state


def test_it_trains_and_evaluates_in_the_right_mode(trained):
    _, state = trained
    assert int(state.step) == 30
    assert set(modes) == {True, False}


def test_its_intermediate_fields_are_in_the_context(trained):
    trainer, _ = trained
    lines = list(writers.read_scalars(pathlib.Path(trainer.workdir) / "train"))
    norms = [v for line in lines for k, v in line["values"].items() if "norm" in k]
    assert len(norms) >= 2
    assert np.isfinite(norms).all() and min(norms) > 0


def test_its_weights_can_be_bound(trained):
    _, state = trained
    params = jax.device_get(state.params)
    arrays = make_arrays()
    bound = _model().init_bind(0, arrays["x"]).with_params(params).eval()
    y = bound(arrays["x"])["y"]
    fresh = _model().init_bind(0, arrays["x"]).eval()(arrays["x"])["y"]
    error, error_before = (
        np.mean((np.asarray(out) - arrays["y"]) ** 2) for out in (y, fresh)
    )
    assert error < error_before
    assert bound.encoder.childs[1].params["kernel"].shape == (4, 8)
