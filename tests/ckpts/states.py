"""Small states to save, and a process to save them in."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

from kauldron import kd
from tests import processes
from tests.compilation import quick_environment


def make_state(step=0, *, features=3, optimizer=True, dtype=jnp.float32):
    """A state like that of a small model; other steps have other values."""
    kernel = np.random.default_rng(step).normal(size=(4, features))
    params = {
        "dense": {
            "kernel": jax.device_put(kernel.astype(dtype)),
            "bias": full((features,), step, dtype),
        }
    }
    return kd.train.TrainState(
        step=full((), step, np.int32),
        params=params,
        collections={"stats": {"mean": full((features,), 0.5 + step, np.float32)}},
        opt_state=optax.adam(1e-3).init(params) if optimizer else None,
    )


#
# Arrays made without compiling anything, as `jnp` does for each new shape
#


def full(shape, value, dtype=None):
    return jax.device_put(np.full(shape, value, dtype))


def zeros(shape, dtype=np.float32):
    return full(shape, 0, dtype)


def ones(shape, dtype=np.float32):
    return full(shape, 1, dtype)


def random_array(size, seed=0):
    """Numbers that cannot be compressed."""
    return jax.device_put(np.random.default_rng(seed).random(size, np.float32))


def make_checkpointer(workdir, **kwargs):
    return kd.ckpts.Checkpointer(
        **{"workdir": workdir, "save_interval_steps": 1, **kwargs}
    )


def save_steps(checkpointer, steps, **kwargs):
    """Save the states of some steps, one after the other."""
    for step in steps:
        assert checkpointer.save(make_state(step), step=step, **kwargs)
    checkpointer.wait_until_finished()


def assert_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def specs_of(tree):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree
    )


def files_below(folder):
    """Names of all files and folders, with the times of their last change."""
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
    }


def run_python(script, *args, device_count=1, exit_code=0):
    """Run a script in a process of its own; returns what it printed."""
    code, output = start_python(script, *args, device_count=device_count).wait()
    assert code == exit_code, output
    return output


def start_python(script, *args, device_count=1):
    """Start a script in a process of its own, which compiles quickly."""
    flags = f"--xla_force_host_platform_device_count={device_count}"
    environment = {**quick_environment(), "XLA_FLAGS": flags}
    words = ("-c", textwrap.dedent(script), *args)
    return processes.python(*words, environment=environment)


def run_new_python(script, *args, exit_code=0):
    """The same, for what happens when the interpreter itself is left."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert result.returncode == exit_code, result.stdout
    return result.stdout


@contextlib.contextmanager
def without_permission(mode):
    """A folder for which this process has only the permissions of `mode`, inside.

    Yields:
      The folder, and a context manager inside which the permissions apply.
    """

    @contextlib.contextmanager
    def applied():
        is_root = os.geteuid() == 0  # who may do anything
        for path in (folder, folder / "checkpoints"):
            path.chmod(mode)
        if is_root:
            os.seteuid(65534)
        try:
            yield
        finally:
            if is_root:
                os.seteuid(0)
            for path in (folder, folder / "checkpoints"):
                path.chmod(0o755)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        yield folder, applied


def orbax_manager(workdir, **options):
    """Writes checkpoints as another program does, with orbax's own manager."""
    return ocp.CheckpointManager(
        workdir / "checkpoints",
        options=ocp.CheckpointManagerOptions(step_prefix="ckpt", **options),
        item_names=("default", "timer", "ds_iter"),
        item_handlers={
            "default": ocp.StandardCheckpointHandler(),
            "timer": ocp.JsonCheckpointHandler(),
            "ds_iter": ocp.JsonCheckpointHandler(),
        },
    )
