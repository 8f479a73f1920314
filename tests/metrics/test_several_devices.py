"""States over several devices and several processes."""

import json
import os
import socket
import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent(
    """
    import json, os, sys
    import jax, numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    process, num_processes, port = map(int, sys.argv[1:])
    if num_processes > 1:
        jax.distributed.initialize(f"localhost:{port}", num_processes, process)

    from kauldron import losses, metrics, summaries

    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=auto)
    split = NamedSharding(mesh, PartitionSpec("data"))
    everywhere = NamedSharding(mesh, PartitionSpec())

    ours = {
        "accuracy": metrics.Accuracy(logits="x", labels="y", mask="m"),
        "auc": metrics.RocAuc(logits="x", labels="y", mask="m"),
        "std": metrics.Std(values="x", mask="m"),
        "loss": losses.SoftmaxCrossEntropyWithIntLabels(logits="x", labels="y"),
        "norm": metrics.TreeMap(metric=metrics.Norm(tensor="tree")),
        "hist": summaries.HistogramSummary(tensor="x"),
    }

    def make_batch(seed):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(8, 3)).astype(np.float32)
        y, m = rng.integers(0, 3, (8, 1)), rng.uniform(size=(8, 1)).astype(np.float32)
        return {"x": x, "y": y, "m": m, "tree": {"a": x, "b": x[:, :1]}}

    def put(array):
        return jax.make_array_from_callback(array.shape, split, lambda i: array[i])

    @jax.jit
    def step(batch):
        states = {n: m.get_state_from_context(batch) for n, m in ours.items()}
        return jax.lax.with_sharding_constraint(states, everywhere)

    @jax.jit
    def alone_step(batch):
        return {n: m.get_state_from_context(batch) for n, m in ours.items()}

    def value(state):
        result = state.compute()
        if isinstance(result, summaries.Histogram):
            result = result.tensor.sum()
        return jax.tree.map(float, result)

    merged, expected = None, None
    for seed in range(3):
        batch = make_batch(seed)
        states = step(jax.tree.map(put, batch))
        replicated = all(x.is_fully_replicated for x in jax.tree.leaves(states))
        merged = metrics.merge_states(merged, states)
        alone = alone_step(batch)
        expected = metrics.merge_states(expected, alone)
    print(json.dumps({
        "devices": jax.device_count(),
        "replicated": replicated,
        "values": {n: value(s) for n, s in merged.items()},
        "expected": {n: value(s) for n, s in expected.items()},
    }))
    """
)


def run(num_processes: int, devices_per_process: int) -> list[dict]:
    """Run the program in processes joined on loopback; what each of them prints."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
    flags = f"--xla_force_host_platform_device_count={devices_per_process}"
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(i), str(num_processes), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        for i in range(num_processes)
    ]
    try:
        results = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, results):
        assert process.returncode == 0, errors
    return [json.loads(output.splitlines()[-1]) for output, _ in results]


def assert_as_expected(result):
    flatten = lambda tree: {  # noqa: E731
        f"{name}/{sub}": number
        for name, value in tree.items()
        for sub, number in (value.items() if isinstance(value, dict) else [("", value)])
    }
    assert flatten(result["values"]) == pytest.approx(
        flatten(result["expected"]), rel=1e-5
    )


@pytest.mark.slow
@pytest.mark.usefixtures("fast_python")
def test_states_leave_the_step_replicated_and_every_process_computes_the_same():
    first, second = run(num_processes=2, devices_per_process=2)
    assert first["devices"] == second["devices"] == 4
    assert first["replicated"] and second["replicated"]
    assert first["values"] == second["values"]
    assert_as_expected(first)
