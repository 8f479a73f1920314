"""One run in several processes: they save and restore together."""

import os
import socket
import subprocess
import sys
import textwrap

import pytest

WORKER = """
    import pathlib, sys
    import jax, numpy as np
    rank, port, workdir = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, rank)
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from kauldron import kd
    from tests.ckpts.states import make_checkpointer

    mesh = Mesh(np.array(jax.devices()), ("x",))

    def values(step):
        return np.arange(4096, dtype=np.float32).reshape(512, 8) + step

    def put(value, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(value.shape, sharding, lambda i: value[i])

    def state(step):
        whole = np.random.default_rng(step).normal(size=(512, 512))
        params = {"w": put(values(step), P("x")), "b": put(whole, P())}
        return kd.train.TrainState(step=put(np.asarray(step), P()), params=params)

    def check(restored, step):
        assert int(restored.step.addressable_data(0)) == step
        for shard in restored.params["w"].addressable_shards:
            np.testing.assert_array_equal(shard.data, values(step)[shard.index])

    checkpointer = make_checkpointer(workdir, max_to_keep=2, checksum=True)
    for step in (1, 2, 3):
        assert checkpointer.should_save(step)
        assert checkpointer.save(state(step), step=step)
    checkpointer.wait_until_finished()
    assert not checkpointer.should_save(3)
    assert checkpointer.save(state(3), step=3) is False
    multihost_utils.sync_global_devices("saved")
    check(checkpointer.restore(state(0)), 3)
    assert checkpointer.all_steps == [2, 3]
    sizes = [p.stat().st_size for p in workdir.rglob("ckpt_3/default/**/*")]
    array_bytes = 512 * 512 * 4
    assert array_bytes // 2 < sum(sizes) < array_bytes * 1.5  # each is written once

    # A file that only the other process reads is damaged: both take the one before.
    multihost_utils.sync_global_devices("restored")
    newest = workdir / "checkpoints" / "ckpt_3"
    if rank == 0:
        (newest / "checksums.json").unlink()
        for path in newest.glob("default/ocdbt.process_1/d/*"):
            path.write_bytes(b"")
    multihost_utils.sync_global_devices("damaged")
    again = make_checkpointer(workdir)
    restored, step = again.restore_newest(state(0))
    assert step == 2
    check(restored, 2)
    assert again.save(state(3), step=3)
    again.close()
    check(again.restore(state(0)), 3)
    print("done")
"""


@pytest.mark.slow
def test_two_processes_save_restore_and_agree_on_what_is_damaged(tmp_path):
    with socket.socket() as sock:
        sock.bind(("localhost", 0))
        port = sock.getsockname()[1]
    flags = "--xla_force_host_platform_device_count=1"
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    script = textwrap.dedent(WORKER)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), str(port), str(tmp_path)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [worker.communicate(timeout=120) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, (out, err) in zip(workers, outputs):
        assert worker.returncode == 0, err
        assert "done" in out
