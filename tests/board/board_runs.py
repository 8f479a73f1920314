"""Runs with everything that the board shows."""

import numpy as np
from etils import epath

from kauldron.writers.event_file import EventFile
from tests.inspect.written_runs import write_run

SCRIPT = "<img src=x onerror='window.hacked = 1'><script>window.hacked = 1</script>"


def write_runs(root):
    """Four runs, two learning rates and two seeds, each with summaries."""
    for index in range(4):
        seed, rate = index % 2, [1e-3, 1e-2][index // 2]
        workdir = write_run(
            root / f"sweep/{index + 1}",
            config={"seed": seed, "lr": rate, "model": {"__qualname__": "nets:Net"}},
            train=[{"losses/total": 2.0 / (1 + step * rate)} for step in range(300)],
            test=[{"metrics/accuracy": (1 + index) / 10 + s / 100} for s in range(3)],
        )
        (workdir / "logs").mkdir()
        (workdir / "logs/train.log").write_text(f"step 299 of run {index}\n{SCRIPT}\n")
        _write_summaries(workdir)
    return root


def _write_summaries(workdir):
    events = EventFile(epath.Path(workdir / "test"))
    for step in (0, 10):
        picture = np.full((2, 8, 8, 3), step * 10, np.uint8)
        events.images(step, {"summaries/digits": picture})
        events.histograms(step, {"summaries/weights": np.arange(50.0)}, 10)
        events.texts(step, {"summaries/said": f"step {step} {SCRIPT}"})
    matrix = "true \\ pred | cat | dog\n--- | --- | ---\ncat | 5 | 1\ndog | 2 | 7"
    events.texts(10, {"summaries/confusion": matrix})
    events.close()
