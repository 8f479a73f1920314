"""Two real processes share the data."""

import json
import os
import socket
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
import jax
jax.distributed.initialize("127.0.0.1:" + sys.argv[1], 2, int(sys.argv[2]))
import numpy as np
from kauldron import kd

def share(**kwargs):
    kwargs = {"shuffle": True, "seed": 1, "num_epochs": 1, "batch_size": 4} | kwargs
    return kd.data.py.DataSource([{"x": i} for i in range(10)], **kwargs)

(first, *_) = share().device_put()
try:
    iter(share(batch_size=3))
    error = None
except ValueError as e:
    error = str(e)
print(json.dumps({
    "batches": [batch["x"].tolist() for batch in share()],
    "workers": [batch["x"].tolist() for batch in share(num_workers=1)],
    "spec": list(share().element_spec["x"].shape),
    "global_shape": list(first["x"].shape),
    "addressable": np.asarray(first["x"].addressable_data(0)).tolist(),
    "error": error,
}))
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.slow
def test_two_processes_get_the_halves_of_each_batch(fast_python):
    port = str(free_port())
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), *sys.path])
    environment.pop("XLA_FLAGS", None)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, port, str(index)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for index in range(2)
    ]
    results = [json.loads(p.communicate(timeout=120)[0]) for p in processes]
    seen = [x for result in results for batch in result["batches"] for x in batch]
    assert len(seen) == len(set(seen)) == 8
    for result in results:
        assert result["workers"] == result["batches"]
        assert result["spec"] == [2]
        assert result["global_shape"] == [4]
        assert result["addressable"] == result["batches"][0]
        assert "batch_size=3" in result["error"] and "2 processes" in result["error"]
