"""Many trainings in one program: `kauldron sweep --stack` against one run after the other.

`--which=autoencoder` (the default with an accelerator): autoencoders 784-128-784, batch
256, Adam, each with its own seed, and so its own order of the data. The limit is one
`lax.scan` over a step under `vmap`, in bare JAX, on random rows of the same records. Speeds
of ours are read from the logs of the runs, between the second value that each of them
logged and the last, so that starting and compiling do not count. The time of the whole
command, which a user waits for, is given beside them.

`--which=digits` (the default on a CPU): the classifiers of `examples/`, from the start of
the command to its end, against the same sweep with one run after the other; by the clock,
and in seconds of a processor, which other programs on the machine disturb less.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"

CONFIG = """
import numpy as np
from kauldron import konfig

with konfig.imports():
    import optax
    import stacked_benchmark as data
    from flax import linen as nn
    from kauldron import kd


def images(count):
    rng = np.random.default_rng(0)
    return {"image": rng.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8)}


def get_config():
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = STEPS
    cfg.log_metrics_every = EVERY
    cfg.log_summaries_every = None
    cfg.profiler = None
    cfg.train_ds = kd.data.py.Arrays(
        data.images(COUNT),
        shuffle=True,
        batch_size=BATCH,
        transforms=[kd.data.ValueRange(key="image", vrange=(0, 1))],
    )
    cfg.model = kd.nn.FlatAutoencoder(
        inputs="batch.image", encoder=nn.Dense(128), decoder=nn.Dense(784)
    )
    cfg.train_losses = {
        "l2": kd.losses.L2(preds="preds.image", targets="batch.image")
    }
    cfg.optimizer = optax.adam(learning_rate=1e-3)
    return cfg
"""


def write_config(folder, *, batch, steps, count):
    text = CONFIG.replace("STEPS", str(steps)).replace("BATCH", str(batch))
    text = text.replace("EVERY", str(max(steps // 10, 1))).replace("COUNT", str(count))
    path = folder / "stacked_benchmark.py"
    path.write_text(text)
    return path


def sweep(folder, cfg, *flags):
    """Run `kauldron sweep`; return its folders of work units, and the seconds it took.

    The seconds are those of the clock and those of processors.
    """
    root = pathlib.Path(tempfile.mkdtemp(dir=folder))
    environment = {
        **{name: value for name, value in os.environ.items() if name != _PREALLOCATE},
        "KAULDRON_HOME": str(root / "home"),
        "KAULDRON_ROOT_DIR": str(root / "runs"),
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]),
        # The first measurement must not compile for the second.
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }
    command = [sys.executable, "-m", "kauldron.main", "sweep", f"--cfg={cfg}", *flags]
    start = np.array([time.perf_counter(), _seconds_of_children()])
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    seconds = np.array([time.perf_counter(), _seconds_of_children()]) - start
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    units = sorted(path.parent for path in root.glob("runs/*/*/train_complete.txt"))
    return units, seconds


def _seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def steps_per_second(units):
    """Return the speed of one of several runs that were trained together."""
    starts, ends = [], []
    for unit in units:
        lines = (unit / "train" / "scalars.jsonl").read_text().splitlines()
        logged = [json.loads(line) for line in lines]
        logged = [line for line in logged if "losses/total" in line["values"]]
        starts.append(logged[1])
        ends.append(logged[-1])
    seconds = max(e["time"] for e in ends) - min(s["time"] for s in starts)
    return (ends[0]["step"] - starts[0]["step"]) / seconds


def bare_steps_per_second(images, *, units, batch, steps):
    """Return the speed of one of several trainings under `vmap`, in bare JAX."""
    model = nn.Sequential([nn.Dense(128), nn.Dense(784)])
    records = jnp.asarray(images.reshape(len(images), -1))
    optimizer = optax.adam(1e-3)
    keys = jax.random.split(jax.random.PRNGKey(0), units)

    def init(key):
        params = model.init(key, jnp.zeros((1, 784)))
        return params, optimizer.init(params)

    def step(state, rows):
        params, opt_state = state
        own = records[rows].astype(jnp.float32) / 255

        def loss(params):
            return jnp.mean((model.apply(params, own) - own) ** 2)

        grads = jax.grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    rng = np.random.default_rng(0)
    shape = (steps, units, batch)
    rows = jnp.asarray(rng.integers(0, len(images), shape, dtype=np.int32))
    state = jax.jit(jax.vmap(init))(keys)
    if units == 1:  # as one would write it: an axis of one costs a third more
        first = jax.jit(lambda tree: jax.tree.map(lambda x: x[0], tree))
        state, rows = first(state), rows[:, 0]
    update = step if units == 1 else jax.vmap(step)

    @jax.jit
    def run(state, rows):
        return jax.lax.scan(lambda s, r: (update(s, r), None), state, rows)[0]

    jax.block_until_ready(run(state, rows))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(run(state, rows))
        times.append(time.perf_counter() - start)
    return steps / statistics.median(times)


def autoencoders(folder, *, units, batch, steps, count, bare_steps):
    cfg = write_config(folder, batch=batch, steps=steps, count=count)
    flags = [f"--sweep.seed=0:{units}", f"--xp.executor.max_units={units}"]
    many, (seconds, _) = sweep(folder, cfg, "--stack", *flags)
    one, (seconds_of_one, _) = sweep(folder, cfg, "--sweep.seed=0:1")
    assert (len(many), len(one)) == (units, 1)
    ours, alone = steps_per_second(many), steps_per_second(one)
    images = np.random.default_rng(0).integers(0, 256, (count, 784), dtype=np.uint8)
    limit = bare_steps_per_second(images, units=units, batch=batch, steps=bare_steps)
    yield {
        "name": "stacked/steps_per_second_in_total",
        "ours": round(ours * units),
        "limit": round(limit * units),
        "ratio": round(ours / limit, 3),
        "unit": "steps/s",
        "goal": 130_000,
    }
    yield {
        "name": "stacked/price_of_a_stack",
        "ours": round(seconds / seconds_of_one, 2),
        "seconds": [round(seconds, 1), round(seconds_of_one, 1)],
        "steps": steps,
        "one_after_the_other": units,
        "unit": "times the time of one, from the start of the command to its end",
        "goal": 4.5,
    }
    alone_limit = bare_steps_per_second(images, units=1, batch=batch, steps=bare_steps)
    yield {
        "name": "stacked/price_of_a_step",
        "ours": round(alone / ours, 2),
        "limit": round(alone_limit / limit, 2),
        "unit": "times the time of one, starting and compiling left out",
    }


def digits(folder, *, units, steps):
    cfg = EXAMPLES / "digits_classifier.py"
    flags = [f"--sweep.seed=0:{units}", f"--cfg.num_train_steps={steps}"]
    stacked, ours = sweep(folder, cfg, "--stack", *flags)
    plain, limit = sweep(folder, cfg, "--xp.executor.max_parallel=1", *flags)
    assert len(stacked) == len(plain) == units
    for name, own, other in zip(("", "_processor_time"), ours, limit):
        yield {
            "name": f"stacked/digits_classifiers{name}",
            "ours": round(own, 1),
            "one_after_the_other": round(other, 1),
            "ratio": round(own / other, 3),
            "unit": "s",
            "goal": 0.5,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--which", choices=("autoencoder", "digits"))
    parser.add_argument("--units", type=int)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    # The memory of the device is for the commands that are measured.
    os.environ[_PREALLOCATE] = "false"
    is_cpu = jax.default_backend() == "cpu"
    which = args.which or ("digits" if is_cpu and not args.tiny else "autoencoder")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if which == "digits":
            figures = digits(folder, units=args.units or 8, steps=args.steps or 600)
        elif args.tiny:
            figures = autoencoders(
                folder, units=2, batch=8, steps=4, count=64, bare_steps=4
            )
        else:
            figures = autoencoders(
                folder,
                units=args.units or 32,
                batch=256,
                steps=args.steps or 50_000,
                count=60_000,
                bare_steps=1_000,
            )
        for figure in figures:
            print(json.dumps({**figure, "device": jax.devices()[0].device_kind}))


if __name__ == "__main__":
    main()
