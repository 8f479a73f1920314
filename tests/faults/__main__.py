"""Disturb runs by chance, over all kinds of faults and configurations.

    python -m tests.faults --rounds 300 --seed 0 --jobs 2

A round depends on the seed and its number alone: `--first 17 --rounds 1` repeats one.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import sys
import tempfile
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from tests.faults import faults, rounds

_FORMAT = "{:>5}  {:<30} {:<46} {:<16} {:>6}  {}"


def main(argv=None):
    """Run the rounds; return 1 if any came out wrong."""
    args = _parse(argv)
    results = []
    with tempfile.TemporaryDirectory(prefix="kauldron-faults-") as folder:
        lab = rounds.Lab(pathlib.Path(folder))
        _print(_FORMAT.format("round", "kind", "place", "setup", "secs", "outcome"))
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            numbers = range(args.first, args.first + args.rounds)
            for result in pool.map(lambda n: _round(n, args, lab), numbers):
                results.append(result)
    print_summary(results)
    return int(any(verdict == "WRONG" for _, verdict in results))


def _parse(argv):
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="rounds at a time")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--kind", default="", help="only kinds that contain this text")
    return parser.parse_args(argv)


def _round(number, args, lab):
    """Run one round and print its line; return the fault and the verdict."""
    fault = _draw(random.Random(f"{args.seed}/{number}"), args.kind)
    begin = time.monotonic()
    message = ""
    if fault.needs_disk and not rounds.can_mount():
        verdict, outcome = "not possible", "not possible: may not mount a small disk"
    else:
        try:
            verdict, outcome = "right", rounds.run(fault, lab)
        except Exception as error:
            verdict = outcome = "WRONG"
            message = f"\n{type(error).__name__}: {error}\n"
    seconds = f"{time.monotonic() - begin:.1f}"
    line = (number, fault.kind, fault.place, fault.setup, seconds, outcome)
    _print(_FORMAT.format(*line) + message)
    return fault, verdict


def _draw(rng, kind):
    while True:
        fault = faults.draw(rng)
        if kind in fault.kind:
            return fault


def print_summary(results):
    """Print a table of kinds and verdicts, as Markdown."""
    verdicts = ["right", "WRONG", "not possible"]
    counts = collections.Counter((fault.kind, verdict) for fault, verdict in results)
    shown = [v for v in verdicts if v == "right" or any(v == x for _, x in results)]
    _print(f"\n| fault | rounds | {' | '.join(shown)} |")
    _print("|---|" + "---|" * (1 + len(shown)))
    for kind in sorted({fault.kind for fault, _ in results}):
        row = [counts[kind, verdict] for verdict in shown]
        total = sum(counts[kind, verdict] for verdict in verdicts)
        _print(f"| {kind} | {total} | {' | '.join(map(str, row))} |")
    row = [sum(v == verdict for _, v in results) for verdict in shown]
    _print(f"| all | {len(results)} | {' | '.join(map(str, row))} |")


def _print(line):
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
