"""Count how many files of kauldron a reader walks through to follow what happens.

For each of five flows: the files whose functions run, and how often the next function to
be entered stands in another file than the last one. Numbers that grow say that an idea
was scattered.

    python tools/walk.py            # the table
    python tools/walk.py batch -v   # one flow, with its files in the order of the walk
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np

from kauldron import konfig
from kauldron import ktyping as kt

ROOT = pathlib.Path(__file__).resolve().parent.parent / "kauldron"
GOALS = {
    "config": (18, 150),
    "batch": (9, 60),
    "dispatch": (12, 25),
    "run": (60, None),
    "ktyping error": (8, None),
}


@dataclasses.dataclass
class Walk:
    """Files in the order in which they were entered."""

    steps: list[str] = dataclasses.field(default_factory=list)

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(self.steps))

    @property
    def changes(self) -> int:
        return sum(a != b for a, b in zip(self.steps, self.steps[1:]))


@contextlib.contextmanager
def walking(*, inside: str = "", threads: bool = False) -> Iterator[Walk]:
    """Record the functions of kauldron that are entered in the block.

    Args:
      inside: The package that matters, with the modules that are in none.
      threads: Whether to follow threads that are started meanwhile.
    """
    walk, root = Walk(), str(ROOT) + os.sep

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(root):
            return
        file = name[len(root) :]
        if file.startswith(inside) or os.sep not in file:
            walk.steps.append(file)

    if threads:
        threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


#
# The flows
#


def walk_config() -> Walk:
    """Write a config, override it, check it and resolve it; in konfig alone."""

    def use_config() -> None:
        with konfig.imports():
            import optax
        cfg = konfig.ConfigDict({"steps": 10})
        cfg.optimizer = optax.adam(
            optax.cosine_decay_schedule(1e-2, decay_steps=cfg.ref.steps)
        )
        konfig.apply_overrides(cfg, {"optimizer.b1": 0.8})
        assert not konfig.check(cfg)
        konfig.resolve(cfg)

    use_config()  # what is imported and remembered once is not walked
    with walking(inside="konfig") as walk:
        use_config()
    return walk


def walk_batch() -> Walk:
    """Take one batch from a source of records, transform it and bring it to the device."""
    from kauldron import kd

    ds = kd.data.py.DataSource(
        data_source=[{"image": [float(i)] * 4, "id": i} for i in range(64)],
        shuffle=True,
        seed=0,
        batch_size=8,
        num_workers=0,
        prefetch_batches=0,  # in this thread
        transforms=[
            kd.data.Elements(keep=["image"]),
            kd.data.Cast(key="image", dtype="float32"),
        ],
    )
    iterator = iter(ds.device_put(kd.sharding.FIRST_DIM))
    for _ in range(3):
        next(iterator)
    with walking() as walk:
        next(iterator)
    return walk


def walk_dispatch() -> Walk:
    """Follow a step of the loop that neither logs nor saves."""
    walks: list[Walk] = []
    from kauldron.train.run import loop

    dispatch = loop.Run._dispatch

    def walked(run: Any, *args: Any) -> Any:
        with walking() as walk:
            result = dispatch(run, *args)
        walks.append(walk)
        return result

    loop.Run._dispatch = walked
    try:
        make_trainer(tempfile.mkdtemp(), log_metrics_every=100).train()
    finally:
        loop.Run._dispatch = dispatch
    return walks[-4]


def walk_run() -> Walk:
    """Train, evaluate and save, from the resolved trainer to the end."""
    make_trainer(tempfile.mkdtemp()).train()
    trainer = make_trainer(tempfile.mkdtemp())
    with walking(threads=True) as walk:
        trainer.train()
    return walk


def walk_ktyping_error() -> Walk:
    """Call a checked function with a wrong shape."""

    @kt.typechecked
    def add(a: kt.Float["b c"], b: kt.Float["b c"]) -> kt.Float["b c"]:
        return a + b

    add(np.ones((2, 3), "float32"), np.ones((2, 3), "float32"))
    with walking() as walk:
        try:
            add(np.ones((2, 3), "float32"), np.ones((2, 4), "float32"))
        except kt.KTypeCheckError as error:
            str(error)
    return walk


FLOWS: dict[str, Callable[[], Walk]] = {
    "config": walk_config,
    "batch": walk_batch,
    "dispatch": walk_dispatch,
    "run": walk_run,
    "ktyping error": walk_ktyping_error,
}


#
# What they run
#


def make_trainer_config(**changes: Any) -> Any:
    """An autoencoder of digits, as a user would write it."""
    with konfig.imports():
        import optax
        from flax import linen as nn
        from sklearn import datasets

        from kauldron import kd
    cfg = kd.train.Trainer()
    cfg.num_train_steps = 12
    cfg.log_metrics_every = 4
    cfg.train_ds = kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "data"},
        shuffle=True,
        batch_size=32,
        transforms=[
            kd.data.Cast(key="image", dtype="float32"),
            kd.data.Elements(keep=["image"]),
        ],
    )
    cfg.eval_ds = kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "data"},
        shuffle=False,
        num_epochs=1,
        batch_size=600,
        transforms=[kd.data.Cast(key="image", dtype="float32")],
    )
    cfg.model = kd.nn.FlatAutoencoder(
        inputs="batch.image", encoder=nn.Dense(16), decoder=nn.Dense(64)
    )
    cfg.train_losses = {"l2": kd.losses.L2(preds="preds.image", targets="batch.image")}
    cfg.optimizer = optax.adam(
        optax.cosine_decay_schedule(1e-2, decay_steps=cfg.ref.num_train_steps)
    )
    cfg.evals = {"test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(6))}
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=6)
    cfg.profiler = None
    for name, value in changes.items():
        cfg[name] = value
    return cfg


def make_trainer(workdir: str, **changes: Any) -> Any:
    return konfig.resolve(make_trainer_config(workdir=workdir, **changes))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("flow", nargs="*", choices=[*FLOWS, []], help="default: all")
    parser.add_argument("-v", "--verbose", action="store_true", help="list the files")
    args = parser.parse_args()
    print("| walk | files | goal | changes of file | goal |")
    print("|---|---|---|---|---|")
    for name in args.flow or FLOWS:
        walk = FLOWS[name]()
        files, changes = GOALS[name]
        print(
            f"| {name} | {len(walk.files)} | {files} | {walk.changes} | {changes or ''} |"
        )
        if args.verbose:
            for file in walk.files:
                print(f"    {file}  ({walk.steps.count(file)})")


if __name__ == "__main__":
    main()
