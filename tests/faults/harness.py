"""Runs the worker, disturbed or not, and compares what is left."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np

from kauldron import writers
from kauldron.ckpts import Checkpointer, items

ROOT = pathlib.Path(__file__).parents[2]
COLLECTIONS = ("train", "eval", "final")


def start(workdir, *fault):
    """Start a worker; returns the process."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.worker", str(workdir), *map(str, fault)],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(workdir, *fault):
    """Run a worker to its end; returns its exit status and output."""
    process = start(workdir, *fault)
    output, _ = process.communicate()
    return process.returncode, output


def finish(workdir, *options, most_starts=5):
    """Start again, as an operator would, until the run is complete."""
    for _ in range(most_starts):
        status, output = run(workdir, *options)
        if status == 0:
            return
    raise AssertionError(f"The run did not finish:\n{output}")


def logged_points(workdir):
    """All logged values without times: `{collection: [(step, values)]}`."""
    return {
        collection: [
            (
                line["step"],
                {
                    name: value
                    for name, value in line["values"].items()
                    if not name.startswith("perf_stats/")
                },
            )
            for line in writers.read_scalars(pathlib.Path(workdir) / collection)
        ]
        for collection in COLLECTIONS
    }


def final_state(workdir):
    """The newest checkpoint as nested dicts."""
    checkpointer = Checkpointer(workdir=str(workdir), save_interval_steps=1)
    return checkpointer.restore(items.StandardCheckpointItem())


def assert_same_run(workdir, reference):
    """The two runs are identical to the bit, in state and in logs."""
    import jax

    jax.tree.map(
        np.testing.assert_array_equal, final_state(workdir), final_state(reference)
    )
    points, expected = logged_points(workdir), logged_points(reference)
    assert points == expected, json.dumps([points, expected], indent=1)
    assert (pathlib.Path(workdir) / "train_complete.txt").read_text() == (
        pathlib.Path(reference) / "train_complete.txt"
    ).read_text()
