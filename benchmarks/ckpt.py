"""Checkpoints: how long a training loop stands still for a save.

Run with `python benchmarks/ckpt.py [--tiny]`; prints one JSON line per figure:

- `standstill`: time that `save` keeps the loop waiting, for 100 M parameters, against a
  blocking save with orbax. The goal is a ratio of at most 0.1.
- `step_after`: what the next step takes longer because of it. On a CPU that step needs
  new memory, and shares the cores with the writing of files.
- `checksum`, `checksum_cpu`: time, and time of the processors, to note the sizes and
  checksums of all files, against a whole save without. The goal is a ratio of at most 0.02.
- `save_with_checksum`: a whole save with them, against one without.
- `check`, `check_cpu`: time to check all of it before a restore, against the restore.
- `restore`: time to restore them, against plain orbax.
- `first_save`: time that the first save of a process blocks, for arrays of 40 shapes with
  a copy on each of eight virtual devices, against an asynchronous save with orbax, which
  compiles one program per shape and device.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from figures import show

from kauldron import kd
from kauldron.ckpts import step_folders

_EIGHT_DEVICES = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
}


class Sizes(NamedTuple):
    """How much is measured."""

    num_params: int = 100_000_000
    num_arrays: int = 20
    repeats: int = 5
    checksum_repeats: int = 15
    num_shapes: int = 40


_TINY = Sizes(100, 2, 1, 1, 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="quick run")
    parser.add_argument("--first-save", type=int, help="this figure, for n shapes")
    args = parser.parse_args()
    sizes = _TINY if args.tiny else Sizes()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if args.first_save:
            measure_first_save(folder, args.first_save)
            return
        measure(folder, sizes)
    command = [sys.executable, __file__, f"--first-save={sizes.num_shapes}"]
    subprocess.run(command, env={**os.environ, **_EIGHT_DEVICES}, check=True)


def measure(folder: pathlib.Path, sizes: Sizes) -> None:
    state, repeats = make_state(sizes), sizes.repeats
    step = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
    state = jax.block_until_ready(step(state))
    checkpointer = kd.ckpts.Checkpointer(
        workdir=folder / "ours", save_interval_steps=1, max_to_keep=1
    )
    saves, extras, blocking = [], [], []
    for i in range(repeats + 1):  # the first one warms up
        plain_time, state = timed(lambda state=state: step(state))
        saves.append(timed(lambda i=i, s=state: checkpointer.save(s, step=i))[0])
        step_time, state = timed(lambda state=state: step(state))
        extras.append(max(step_time - plain_time, 0.0))
        checkpointer.wait_until_finished()
        blocking.append(timed(lambda s=state: save_with_orbax(folder / "orbax", s))[0])
    report("standstill", saves[1:], blocking[1:], goal=0.1)
    report("step_after", extras[1:], blocking[1:])
    measure_checksums(folder, state, sizes.checksum_repeats)
    specs = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    del state
    ours, plain = [], []
    for _ in range(repeats + 1):
        ours.append(timed(lambda: checkpointer.restore(specs))[0])
        plain.append(timed(lambda: restore_with_orbax(folder / "orbax", specs))[0])
    report("restore", ours[1:], plain[1:])


def measure_checksums(folder: pathlib.Path, state: Any, repeats: int) -> None:
    checkpointers = {
        checksum: kd.ckpts.Checkpointer(
            workdir=folder / f"checksum_{checksum}",
            save_interval_steps=1,
            max_to_keep=1,
            checksum=checksum,
        )
        for checksum in (False, True)
    }
    saves: dict[bool, list[Times]] = {False: [], True: []}
    notes, restores, checks = [], [], []
    reader = checkpointers[False]
    for i in range(repeats + 1):  # the first one warms up
        for checksum, checkpointer in checkpointers.items():
            times = timed_twice(lambda c=checkpointer, i=i: save_and_wait(c, state, i))
            saves[checksum].append(times)
        saved = checkpointers[True].folder / f"ckpt_{i}"
        notes.append(timed_twice(lambda saved=saved: note_checksums(saved)))
        restores.append(timed_twice(lambda: reader.restore(state, donate=False)))
        checks.append(
            timed_twice(lambda saved=saved: step_folders.check_checksums(saved))
        )
    for index, suffix in enumerate(("", "_cpu")):
        note, plain, restore, check = (
            [times[index] for times in every[1:]]
            for every in (notes, saves[False], restores, checks)
        )
        report(f"checksum{suffix}", note, plain, goal=0.02)
        report(f"check{suffix}", check, restore)
    wall = {key: [times[0] for times in every[1:]] for key, every in saves.items()}
    report("save_with_checksum", wall[True], wall[False])


def note_checksums(folder: Any) -> None:
    step_folders.write_checksums(folder)
    step_folders.write_sums(folder)


def save_and_wait(checkpointer: kd.ckpts.Checkpointer, state: Any, step: int) -> None:
    checkpointer.save(state, step=step)
    checkpointer.wait_until_finished()


def measure_first_save(folder: pathlib.Path, num_shapes: int) -> None:
    mesh = jax.make_mesh((8,), ("devices",))
    replicated = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    arrays = {f"w{i}": np.ones((8 * (i + 1), 64)) for i in range(num_shapes)}
    params = jax.device_put(arrays, replicated)
    state = kd.train.TrainState(step=jnp.zeros((), jnp.int32), params=params)
    checkpointer = kd.ckpts.Checkpointer(workdir=folder / "ours", save_interval_steps=1)
    with checkpointer, ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler()) as plain:
        ours, _ = timed(lambda: checkpointer.save(state, step=0))
        args = ocp.args.StandardSave(as_dict(state))
        limit, _ = timed(lambda: plain.save(folder / "orbax", args=args))
    report("first_save", [ours], [limit])


def make_state(sizes: Sizes) -> kd.train.TrainState:
    key = jax.random.key(0)
    shape = (sizes.num_params // sizes.num_arrays,)
    params = {
        f"w{i}": jax.random.normal(jax.random.fold_in(key, i), shape)
        for i in range(sizes.num_arrays)
    }
    return kd.train.TrainState(step=jnp.zeros((), jnp.int32), params=params)


def save_with_orbax(folder: pathlib.Path, state: Any) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as saver:
        saver.save(folder, args=ocp.args.StandardSave(as_dict(state)))


def restore_with_orbax(folder: pathlib.Path, specs: Any) -> Any:
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as reader:
        return reader.restore(folder, args=ocp.args.StandardRestore(as_dict(specs)))


def as_dict(state: Any) -> dict[str, Any]:
    return {"step": state.step, "params": state.params}


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - begin, result


class Times(NamedTuple):
    """Seconds on the clock, and of the processors."""

    wall: float
    cpu: float


def timed_twice(function: Callable[[], Any]) -> Times:
    begin = time.process_time()
    wall, _ = timed(function)
    return Times(wall, time.process_time() - begin)


def report(
    name: str, ours: list[float], limit: list[float], goal: float | None = None
) -> None:
    medians = statistics.median(ours), statistics.median(limit)
    device = jax.devices()[0].device_kind
    show(f"ckpt/{name}", *medians, unit="s", digits=4, device=device, goal=goal)


if __name__ == "__main__":
    main()
