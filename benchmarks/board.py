"""The board: how long until the first view stands, and until a zoom is drawn.

Run with `python benchmarks/board.py [--tiny]`; prints one JSON line per figure. 200 runs
of 10 000 points each (4 of 40 with `--tiny`) are written, served by `kauldron board` in a
process of its own, and opened in Chromium without a window. The first view of a server that
has read nothing yet, from the address to four drawn charts; the same again; a drag over a
chart, until its finer points are drawn; a frame while zooming. Without Chromium, the server
alone is measured. The limit is an empty folder in the same browser.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from figures import show

CHROMIUM = pathlib.Path("/usr/bin/chromium")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="quick run")
    tiny = parser.parse_args().tiny
    runs, points, repeats = (4, 40, 1) if tiny else (200, 10_000, 5)
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "empty").mkdir()
        write_runs(root / "runs", runs, points)
        answers = [measure_server(root / "runs") for _ in range(repeats)]
        for question in answers[0]:
            report(f"server_{question}", [answer[question] for answer in answers])
        if CHROMIUM.exists():
            measure_browser(root, runs, repeats)


def write_runs(root: pathlib.Path, runs: int, points: int) -> None:
    """Write workdirs with two metrics and what else a run logs."""
    noise = [random.Random(0).gauss(0, 0.05) for _ in range(points)]
    for index in range(runs):
        rate, seed = 10 ** -(2 + index // 8 % 5 / 2), index % 8
        workdir = root / str(index)
        config = {"seed": seed, "optimizer": {"learning_rate": rate}}
        (workdir / "train").mkdir(parents=True)
        (workdir / "test").mkdir()
        (workdir / "config.json").write_text(json.dumps(config))
        info = {"starts": [{"time": 1.7e9, "step": 0}], "saved_step": None}
        (workdir / "run_info.json").write_text(json.dumps(info))
        lines = []
        for step in range(points):
            loss = (
                2.3 * math.exp(-step * rate) + 0.2 + noise[(step * 7 + seed) % points]
            )
            values = {
                "losses/total": loss,
                "metrics/accuracy": 1 - loss / 3,
                "schedules/learning_rate": rate * (1 - step / points),
                "perf_stats/steps_per_sec": 50 + noise[step],
            }
            line = {"step": step, "time": 1.7e9 + step / 50, "values": values}
            lines.append(json.dumps(line) + "\n")
        (workdir / "train/scalars.jsonl").write_text("".join(lines))
        (workdir / "test/scalars.jsonl").write_text("".join(lines[:: points // 20]))


@contextlib.contextmanager
def served(folder: pathlib.Path) -> Iterator[str]:
    command = [sys.executable, "-m", "kauldron", "board", str(folder), "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            (address,) = re.findall(r"http://[\d.]+:\d+", line)
            read(address)  # it serves now
            yield address
        finally:
            process.terminate()


def measure_server(folder: pathlib.Path) -> dict[str, float]:
    """Return how long the answers take that the first view needs, and a zoom."""
    questions = {
        "runs": "runs",
        "curves": "curves?metric=train/loss",
        "more_curves": "curves?metric=train/accuracy",
        "zoom": "curves?metric=train/loss&first=10&last=30",
    }
    with served(folder) as address:
        return {
            name: seconds(read, f"{address}/api/{path}")
            for name, path in questions.items()
        }


def read(address: str) -> bytes:
    with urllib.request.urlopen(address) as response:
        return response.read()


def measure_browser(root: pathlib.Path, runs: int, repeats: int) -> None:
    from playwright.sync_api import sync_playwright

    first, again, limit, zoom, frame = [], [], [], [], []
    with sync_playwright() as tool:
        browser = tool.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox"]
        )
        for _ in range(repeats):
            page = browser.new_page(
                viewport={"width": 1400, "height": 900},
                bypass_csp=True,  # so that conditions can be evaluated in the page
            )
            page.goto("about:blank")
            with served(root / "empty") as address:
                limit.append(seconds(open_empty, page, address))
            with served(root / "runs") as address:
                first.append(seconds(open_page, page, address, runs))
                again.append(seconds(open_page, page, address, runs))
                zoom.append(seconds(drag, page))
                frame.append(page.evaluate(_FRAME) / 1000)
            page.close()
        browser.close()
    report("first_view", first, limit, goal=1.0)
    report("first_view_again", again, limit)
    report("zoom_finer_points", zoom)
    report("zoom_frame", frame)


def open_empty(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("text=No runs yet")


def open_page(page: Any, address: str, runs: int) -> None:
    page.goto("about:blank")
    page.goto(address)
    wanted = f"canvas[aria-label*=': {runs} curves']"
    page.wait_for_function(
        f'document.querySelectorAll("{wanted}").length >= 4', polling="raf"
    )


def drag(page: Any) -> None:
    box = page.locator("canvas").first.bounding_box()
    with page.expect_response(lambda response: "first=" in response.url):
        page.mouse.move(box["x"] + 150, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + 60)
        page.mouse.up()
    page.evaluate("() => new Promise(requestAnimationFrame)")


# The mean time of a frame in which a chart is drawn again, as while dragging.
_FRAME = """async () => {
  const canvas = document.querySelector('canvas');
  const chart = [...cards.values()][0].chart;
  const begin = performance.now();
  for (let i = 0; i < 20; i++) { chart.draw(); canvas.getContext('2d').getImageData(0, 0, 1, 1); }
  return (performance.now() - begin) / 20;
}"""


def seconds(call: Callable[..., Any], *args: Any) -> float:
    begin = time.perf_counter()
    call(*args)
    return time.perf_counter() - begin


def report(
    name: str,
    ours: list[float],
    limit: list[float] | None = None,
    goal: float | None = None,
) -> None:
    bare = None if limit is None else statistics.median(limit)
    show(name, statistics.median(ours), bare, unit="s", digits=4, goal=goal)


if __name__ == "__main__":
    main()
