"""Train for long, and see that nothing piles up.

    python -m tests.faults.soak --steps 100000

Evaluations, checkpoints, summaries and two data workers run along. Memory and open files
at the end must be within 5 % of those at 5 % of the way.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import gc
import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from kauldron import kd, konfig
from tests import processes
from tests.faults import experiments

with konfig.imports():
    from kauldron import kd as kd_cfg
    from tests.faults import soak

TOLERANCE = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Meter(kd.evals.EvaluatorBase):
    """Notes memory and open files, of this process and its workers.

    It looks when nothing is under way: a checkpoint that is being written has files
    open, more of them the slower the machine, and memory that is free again is not
    always given back.

    Attributes:
      path: A file; a line is added for each look.
    """

    path: str

    def evaluate(self, state, step):
        self.base_cfg.checkpointer.wait_until_finished()
        give_memory_back()
        with open(self.path, "a") as file:
            file.write(json.dumps({"step": step, **usage()}) + "\n")


def give_memory_back():
    """Collect garbage, and have free pages leave the process where that is possible."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def usage():
    """Memory in MB and open files, now."""
    pids = [os.getpid(), *_children(os.getpid())]
    found = [value for pid in pids if (value := _usage_of(pid)) is not None]
    return {
        "memory_mb": sum(memory for memory, _ in found),
        "open_files": sum(files for _, files in found),
        "processes": len(found),
    }


def _usage_of(pid):
    folder = pathlib.Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):  # it has ended meanwhile
        lines = (folder / "status").read_text().splitlines()
        memory = next(line for line in lines if line.startswith("VmRSS:"))
        return int(memory.split()[1]) / 1024, len(os.listdir(folder / "fd"))
    return None


def _children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def make_config(workdir, steps, *, num_workers=2, looks=20):
    """The experiment of the faults, for longer; the meter looks so many times."""
    setup = "two workers" if num_workers else "records"
    cfg = experiments.make_config(workdir, setup)
    every = max(1, steps // looks)
    cfg.num_train_steps = steps
    cfg.log_metrics_every = max(1, every // 10)
    cfg.log_summaries_every = max(1, every // 4)
    cfg.train_summaries = {
        "weights": kd_cfg.summaries.HistogramSummary(tensor="params.dense.kernel")
    }
    cfg.checkpointer.save_interval_steps = max(1, every // 2)
    cfg.evals.eval.run = kd_cfg.evals.EveryNSteps(max(1, every // 4))
    cfg.evals.meter = soak.Meter(
        run=kd_cfg.evals.EveryNSteps(every), path=f"{workdir}/usage.jsonl"
    )
    return cfg


def train(workdir, steps, options):
    """Train, in this process."""
    konfig.resolve(make_config(workdir, steps, **options)).train()


def run(workdir, steps, *, environment=None, timeout=24 * 3600, **options):
    """Train in a process of its own; return what the meter noted."""
    process = processes.Process(
        train, str(workdir), steps, options, environment=environment
    )
    code, output = process.wait(timeout)
    assert code == 0, output
    lines = (pathlib.Path(workdir) / "usage.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def growth(noted, tolerance=TOLERANCE):
    """Compare the end with 5 % of the way: lines that tell what grew too much."""
    last = noted[-1]
    early = next(use for use in noted if use["step"] >= 0.05 * last["step"])
    return [
        f"{name} grew from {early[name]:.0f} to {last[name]:.0f}"
        for name in ("memory_mb", "open_files", "processes")
        if last[name] > early[name] * (1 + tolerance)
    ]


def main(argv=None):
    """Run; return 1 if something grew."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="kauldron-soak-") as folder:
        noted = run(folder, args.steps, num_workers=args.workers)
    print("| step | memory, MB | open files | processes |")
    print("|---|---|---|---|")
    for use in noted:
        print(
            f"| {use['step']} | {use['memory_mb']:.0f} | {use['open_files']} "
            f"| {use['processes']} |"
        )
    grown = growth(noted)
    print("\n".join(grown) or "Nothing grew by more than 5 %.")
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
