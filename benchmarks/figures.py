"""What the benchmarks share: times taken in turn, and figures as lines of JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any


def in_turn(
    *works: Callable[[], Any],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Return the seconds of each work, of which every round does all."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, found in zip(works, times):
            start = clock()
            work()
            found.append(clock() - start)
    return times


def show(
    name: str,
    ours: float,
    limit: float | None = None,
    *,
    unit: str,
    digits: int | None = 3,
    **more: Any,
) -> None:
    """Print a figure; with a limit, also their ratio unless `more` has it."""
    figure: dict[str, Any] = {"name": name, "ours": round(ours, digits)}
    if limit is not None:
        ratio = round(ours / limit, 3) if limit else None
        figure |= {"limit": round(limit, digits), "ratio": ratio}
    given = {key: value for key, value in more.items() if value is not None}
    print(json.dumps(figure | {"unit": unit} | given), flush=True)
