"""Each process brings its own part of a batch."""

import os
import socket
import subprocess
import sys
import textwrap

WORKER = textwrap.dedent(
    """
    import sys
    import jax, numpy as np
    port, index = sys.argv[1], int(sys.argv[2])
    jax.distributed.initialize(f"localhost:{port}", 2, index)
    from kauldron import kd

    assert jax.process_count() == 2 and jax.device_count() == 4
    batch = {"image": np.full((4, 3), index), "scale": np.arange(5)}
    shardings = {"image": kd.sharding.FIRST_DIM, "scale": kd.sharding.REPLICATED}
    with jax.transfer_guard("disallow"):
        placed = kd.sharding.device_put(batch, shardings)
        again = kd.sharding.device_put(placed["image"], kd.sharding.FIRST_DIM)

    image, scale = placed["image"], placed["scale"]
    assert image.shape == again.shape == (8, 3), (image.shape, again.shape)
    assert image.sharding == kd.sharding.FIRST_DIM
    for shard in image.addressable_shards:
        assert shard.data.shape == (2, 3)
        np.testing.assert_array_equal(shard.data, index)
    assert scale.shape == (5,)
    np.testing.assert_array_equal(scale.addressable_data(0), np.arange(5))
    assert kd.utils.status.is_lead_host == (index == 0)

    try:
        kd.sharding.device_put({"x": np.ones(3)}, kd.sharding.FIRST_DIM)
    except ValueError as error:
        assert "['x']" in str(error) and "4 devices" in str(error), error
    else:
        raise AssertionError("6 examples were divided among 4 devices")
    print("done", index)
    """
)


def _free_port():
    with socket.socket() as sock:
        sock.bind(("localhost", 0))
        return sock.getsockname()[1]


def test_data_of_two_processes_makes_one_array(fast_python):
    port = _free_port()
    env = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(port), str(index)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )
        for index in range(2)
    ]
    outputs = [worker.communicate(timeout=120)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(outputs)
    assert "done 1" in outputs[1]
