"""A run that moves between machines with other numbers of devices."""

import jax
import numpy as np
import pytest

from kauldron import kd, konfig, writers
from tests.ckpts.states import run_python
from tests.evals.experiments import kd as kd_cfg
from tests.evals.experiments import make_cfg, points, standalone, steps
from tests.train import toy

NUM_STEPS = 10
SIZE = 16


def make(workdir, *, is_divided):
    """The experiment; its parameters on all devices, or one part on each."""
    with konfig.imports():
        from tests.train import toy as toy_cfg

    cfg = make_cfg(
        workdir,
        train_ds=toy_cfg.make_ds(size=SIZE),
        eval_ds=toy_cfg.make_ds(size=SIZE, shuffle=False, num_epochs=1),
        model=toy_cfg.Linear(x="batch.x", rate=0.3, size=SIZE),
        num_train_steps=NUM_STEPS,
        evals={"e": standalone()},
    )
    if is_divided:
        cfg.sharding = kd_cfg.sharding.ShardingStrategy(
            params=kd_cfg.sharding.FSDPSharding(min_size_to_shard_mb=0)
        )
    return cfg


TRAIN = """
    import sys
    import jax
    from kauldron import konfig
    from tests.ckpts.test_other_devices import make

    workdir, count, until = sys.argv[1:]
    assert jax.device_count() == int(count)
    trainer = konfig.resolve(make(workdir, is_divided=True))
    state, _ = trainer.replace(stop_after_steps=int(until)).train()
    kernel = state.params["dense"]["kernel"]
    assert int(state.step) == int(until)
    assert len(kernel.sharding.device_set) == int(count)
    assert not kernel.sharding.is_fully_replicated
"""


SAVE = """
    import sys
    import jax, numpy as np, orbax.checkpoint as ocp
    from jax.sharding import NamedSharding, PartitionSpec as P
    from tests.ckpts.states import assert_equal, make_checkpointer, make_state

    mesh = jax.make_mesh((4, 2), ("x", "y"))

    def put(array, *spec):
        return jax.device_put(array, NamedSharding(mesh, P(*spec)))

    def raw(array):
        is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(array) if is_key else array

    state = jax.tree.map(put, make_state(3, features=8))  # a copy on every device
    collections = {
        "partly": put(np.arange(64.0).reshape(16, 4), "x"),  # two copies of each part
        "key": put(jax.random.key(7)),
    }
    state = state.replace(collections=collections)
    compilations = []

    def note(event, duration, **about):
        if "backend_compile" in event:
            compilations.append(about)

    jax.monitoring.register_event_duration_secs_listener(note)
    jax.jit(lambda x: x + 1)(np.zeros(3))
    assert compilations  # they are noticed
    compilations.clear()
    checkpointer = make_checkpointer(sys.argv[1])
    assert checkpointer.save(state, step=3)
    checkpointer.close()
    restored = checkpointer.restore(state, donate=False)
    assert not compilations, compilations
    assert_equal(jax.tree.map(raw, restored), jax.tree.map(raw, state))

    folder = checkpointer.folder / "ckpt_3" / "default"
    with ocp.StandardCheckpointer() as plain:
        loaded = plain.restore(folder)
    assert isinstance(loaded["params"]["dense"]["kernel"], np.ndarray)
    assert_equal(loaded["params"], state.params)
    key = jax.random.wrap_key_data(loaded["collections"]["key"])
    assert key == state.collections["key"]
"""


def test_saving_and_restoring_replicated_arrays_compiles_nothing(tmp_path):
    run_python(SAVE, tmp_path, device_count=8)


@pytest.mark.slow
def test_training_moves_from_eight_devices_to_one_and_to_two(tmp_path):
    moved, whole = tmp_path / "moved", tmp_path / "whole"
    run_python(TRAIN, moved, 8, 4, device_count=8)
    assert _predictions_of(moved).shape == (toy.NUM_RECORDS, SIZE)
    here = konfig.resolve(make(whole, is_divided=False))
    assert jax.device_count() == 1
    here.train()
    state, _ = here.replace(workdir=str(moved), stop_after_steps=7).train()
    assert int(state.step) == 7
    run_python(TRAIN, moved, 2, NUM_STEPS, device_count=2)

    # The same batches and random numbers; sums are rounded in another order.
    np.testing.assert_allclose(
        _predictions_of(moved), _predictions_of(whole), rtol=1e-4, atol=1e-5
    )
    expected = _losses(whole)
    logged = {step: _losses(moved)[step] for step in expected}
    assert logged == pytest.approx(expected, rel=1e-4)

    for workdir in (moved, whole):
        kd.from_workdir.get_trainer(workdir).continuous_eval("e")
    assert steps(moved, "e") == [NUM_STEPS]
    assert points(moved, "e")[0][1] == pytest.approx(points(whole, "e")[0][1], rel=1e-4)


def _predictions_of(workdir):
    """What two lines in a notebook give, on one device."""
    trainer = kd.from_workdir.get_trainer(workdir)
    state = kd.from_workdir.get_state(workdir)
    x = toy.make_arrays(SIZE)["x"]
    output = trainer.model.apply(
        {"params": state.params}, x, is_training_property=False
    )
    return np.asarray(output["y"])


def _losses(workdir):
    lines = writers.read_scalars(workdir / "train")
    return {
        line["step"]: line["values"]["losses/l2"]
        for line in lines
        if "losses/l2" in line["values"]
    }
