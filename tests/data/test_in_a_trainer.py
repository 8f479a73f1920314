"""Pipelines as parts of a trainer."""

import dataclasses

import jax
import numpy as np

from kauldron import kd


def make_trainer(**kwargs):
    ds = kd.data.py.Arrays({"x": np.arange(32)}, shuffle=True, batch_size=8, **kwargs)
    return kd.train.Trainer(seed=42, train_ds=ds)


def test_the_trainer_gives_its_seed_to_data_that_has_none():
    trainer = make_trainer()
    assert trainer.train_ds.seed == 42
    assert dataclasses.replace(trainer, seed=1).train_ds.seed == 1


def test_a_seed_of_the_data_stays():
    trainer = make_trainer(seed=7)
    assert trainer.train_ds.seed == 7
    assert dataclasses.replace(trainer, seed=1).train_ds.seed == 7


def test_batches_are_placed_as_the_trainer_says():
    trainer = make_trainer()
    expected = [b["x"].tolist() for b in trainer.train_ds.take(2)]
    batches = list(trainer.train_ds.take(2).device_put(trainer.sharding.batch))
    for batch, values in zip(batches, expected, strict=True):
        assert isinstance(batch["x"], jax.Array)
        assert batch["x"].sharding == kd.sharding.FIRST_DIM
        assert batch["x"].tolist() == values
