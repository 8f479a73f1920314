"""Modules that public classes have moved from stay importable."""

import importlib

import pytest

from kauldron import kd


@pytest.mark.parametrize(
    ("path", "cls"),
    [
        ("kauldron.train.checkpoint_state", kd.train.CheckpointState),
        ("kauldron.train.context", kd.train.Context),
        ("kauldron.train.model_with_aux", kd.train.ModelWithAux),
        ("kauldron.train.preemption", kd.train.Preempted),
        ("kauldron.train.profiler", kd.inspect.Profiler),
        ("kauldron.train.train_state", kd.train.TrainState),
        ("kauldron.ckpts.partial_loader", kd.ckpts.PartialKauldronLoader),
        ("kauldron.writers.multi_writer", kd.train.MultiWriter),
        ("kauldron.writers.noop_writer", kd.train.NoopWriter),
    ],
)
def test_class_is_found_at_its_older_path(path, cls):
    assert getattr(importlib.import_module(path), cls.__name__) is cls
