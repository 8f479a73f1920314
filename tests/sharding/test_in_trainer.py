"""Shardings of a trainer."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from kauldron import data, kd, train


def test_older_name_of_the_batch_sharding():
    ds = data.InMemoryPipeline(loader=lambda: {"x": np.ones(8)}, batch_size=4)
    trainer = train.Trainer(train_ds=ds)
    with pytest.warns(DeprecationWarning, match="batch") as record:
        sharding = trainer.sharding.ds
    assert len(record) == 1
    (batch,) = trainer.train_ds.take(1).device_put(sharding)
    assert batch["x"].sharding == kd.sharding.FIRST_DIM


def test_sharding_of_the_state():
    shardings = kd.sharding.ShardingStrategy().state
    assert isinstance(shardings, train.TrainState)
    assert shardings.step == shardings.params == kd.sharding.REPLICATED
    assert shardings.opt_state is None


def test_pipeline_on_four_devices_shards_the_first_dimension(fast_python):
    script = """
        import numpy as np
        from kauldron import data, kd

        ds = data.InMemoryPipeline(
            loader=lambda: {"x": np.ones((8, 3), np.float32)}, batch_size=4, num_epochs=1
        )
        batches = list(ds.device_put())
        assert len(batches) == 2
        assert batches[0]["x"].sharding == kd.sharding.FIRST_DIM
        assert len(batches[0]["x"].sharding.device_set) == 4
    """
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env=env)
