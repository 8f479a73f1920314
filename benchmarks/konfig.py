"""Configs: what a node, resolving, inspecting and the import cost.

Run with `python benchmarks/konfig.py [--tiny]`; prints one JSON line per figure. Next to
each figure stands the same work without konfig: for creating a node, an
`ml_collections.ConfigDict` of the same fields; for resolving, the plain calls; for the
import, `import ml_collections` in a fresh process. `goal` is what we promise. Creating,
resolving and inspecting are measured at three sizes: cost must grow with the work.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import ml_collections
from figures import in_turn, show

from kauldron import konfig

with konfig.imports():
    import types as types_proxy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="quick run")
    tiny = parser.parse_args().tiny
    sizes = (10, 20, 40) if tiny else (1_000, 3_000, 10_000)
    repeats = 1 if tiny else 7
    for size in sizes:
        report(
            f"create_node_{size}",
            lambda size=size: create_nodes(size),
            lambda size=size: create_ml_collections(size),
            repeats,
            unit="us",
            scale=1e6 / size,
            goal=15,
        )
    for size in sizes:
        cfg = konfig.ConfigDict({"nodes": create_nodes(size)})
        report(
            f"resolve_{size}",
            lambda cfg=cfg: konfig.resolve(cfg),
            lambda size=size: call_plainly(size),
            repeats,
            unit="s",
            goal=0.3 * size / 10_000,
        )
        report(
            f"check_{size}",
            lambda cfg=cfg: konfig.check(cfg),
            lambda cfg=cfg: konfig.flatten(cfg),
            repeats,
            unit="s",
        )
    report_import(repeats)


def create_nodes(count: int) -> list[Any]:
    return [types_proxy.SimpleNamespace(index=i, name="node") for i in range(count)]


def create_ml_collections(count: int) -> list[Any]:
    symbol = "types:SimpleNamespace"
    return [
        ml_collections.ConfigDict({"__qualname__": symbol, "index": i, "name": "node"})
        for i in range(count)
    ]


def call_plainly(count: int) -> list[Any]:
    return [types.SimpleNamespace(index=i, name="node") for i in range(count)]


# ------------------------------------------------------------------------------------
# Measuring
# ------------------------------------------------------------------------------------


def report(
    name: str,
    ours: Callable[[], Any],
    limit: Callable[[], Any],
    repeats: int,
    *,
    unit: str,
    scale: float = 1.0,
    goal: float | None = None,
) -> None:
    """Prints the medians of the CPU time of both, measured in turns."""
    times = in_turn(ours, limit, rounds=repeats, clock=time.process_time)
    medians = (statistics.median(found) * scale for found in times)
    show(f"konfig/{name}", *medians, unit=unit, digits=6, goal=goal)


def report_import(repeats: int) -> None:
    """Prints the CPU seconds of a fresh process that imports konfig."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for module, found in zip(("kauldron.konfig", "ml_collections"), times):
            before = cpu_seconds_of_children()
            subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
            found.append(cpu_seconds_of_children() - before)
    medians = map(statistics.median, times)
    show("konfig/import", *medians, unit="s", digits=6, goal=0.4)


def cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
