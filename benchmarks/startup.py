"""From process start to the first finished step: `kauldron train` and a bare script.

Both train one step of an autoencoder 784-128-784. The bare script imports the same
libraries and compiles the same step. The second start of each finds its compiled
programs in a cache.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from figures import show

CONFIG = """
from kauldron import konfig

with konfig.imports():
    import flax.linen as nn
    import numpy as np
    import optax
    import clock
    from kauldron import kd


def get_config():
    cfg = kd.train.Trainer()
    cfg.train_ds = kd.data.py.Arrays(
        {"image": np.zeros((1024, 28, 28), "uint8")},
        shuffle=True,
        batch_size=256,
        transforms=[kd.data.ValueRange(key="image", vrange=(0, 1))],
    )
    cfg.model = kd.nn.FlatAutoencoder(
        inputs="batch.image", encoder=nn.Dense(128), decoder=nn.Dense(784)
    )
    cfg.train_losses = {
        "l2": kd.losses.L2(preds="preds.image", targets="batch.image")
    }
    cfg.optimizer = optax.adam(1e-3)
    cfg.num_train_steps = 1
    cfg.evals = {"clock": clock.Clock(run=kd.evals.Once(1))}
    return cfg
"""

CLOCK = """
import json
import time

import jax
from kauldron import kd


class Clock(kd.evals.EvaluatorBase):
    def evaluate(self, state, step):
        jax.block_until_ready(state)
        print(json.dumps([time.time(), time.process_time()]), flush=True)
"""

BARE = """
import functools
import json
import time

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
import rich.progress
import tensorboardX
from etils import epath

model = nn.Sequential([nn.Dense(128), nn.Dense(784)])
optimizer = optax.adam(1e-3)


@jax.jit
def init(key):
    params = model.init(key, jnp.zeros((256, 784)))
    return params, optimizer.init(params)


@functools.partial(jax.jit, donate_argnums=0)
def step(state, batch):
    params, opt_state = state
    flat = batch.reshape(256, -1)

    def loss_fn(params):
        return jnp.mean((model.apply(params, flat) - flat) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return (optax.apply_updates(params, updates), opt_state), loss


state, loss = step(init(jax.random.PRNGKey(0)), np.zeros((256, 28, 28), np.float32))
jax.block_until_ready((state, loss))
print(json.dumps([time.time(), time.process_time()]), flush=True)
"""


def run(
    command: list[str], cache: pathlib.Path, folder: pathlib.Path
) -> tuple[float, float]:
    """Wall and CPU time of a process until its first step is done."""
    env = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    bytecode = folder / "bytecode"
    if bytecode.exists():
        env["PYTHONPYCACHEPREFIX"] = str(bytecode)  # as installed packages have
        env.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.time()
    process = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        cwd=folder,
    )
    finished, cpu = json.loads(process.stdout.splitlines()[0])
    return finished - started, cpu


def measure(
    folder: pathlib.Path, rounds: int, *, tiny: bool = False
) -> dict[str, list[tuple[float, float]]]:
    """Times of first and second starts, ours and bare, one after the other."""
    (folder / "config.py").write_text(CONFIG)
    (folder / "clock.py").write_text(CLOCK)
    (folder / "bare.py").write_text(BARE)
    times: dict[str, list[tuple[float, float]]] = {}
    if not tiny:
        (folder / "bytecode").mkdir()
    # One round more, to compile the Python code.
    for number in range(0 if tiny else -1, rounds):
        for start in ("first", "second"):
            workdir = folder / f"run_{number}_{start}"
            ours = [sys.executable, "-m", "kauldron.main", "--cfg=config.py"]
            ours += [f"--cfg.workdir={workdir}"]
            commands = {"ours": ours, "bare": [sys.executable, "bare.py"]}
            for name, command in commands.items():
                cache = folder / f"cache_{number}_{name}"
                seconds = run(command, cache, folder)
                if number >= 0:
                    times.setdefault(f"{start} {name}", []).append(seconds)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a quick look")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = 1 if args.tiny else args.rounds
        times = measure(pathlib.Path(folder), rounds, tiny=args.tiny)
    for start in ("first", "second"):
        for index, clock in enumerate(("wall", "cpu")):
            ours = [seconds[index] for seconds in times[f"{start} ours"]]
            bare = [seconds[index] for seconds in times[f"{start} bare"]]
            ratio = statistics.median(a / b for a, b in zip(ours, bare))
            show(
                f"startup/{start}_{clock}",
                statistics.median(ours),
                statistics.median(bare),
                unit="s",
                digits=2,
                ratio=round(ratio, 3),
                goal=1.3,
            )


if __name__ == "__main__":
    main()
