"""Workdirs as runs leave them, written without training."""

import json


def write_run(workdir, *, config=None, start=1_700_000_000.0, **collections):
    """Write a workdir: per collection the values of steps 0, 1, 2, ..."""
    workdir.mkdir(parents=True)
    info = {"starts": [{"time": start, "step": 0}], "saved_step": None, "tags": []}
    (workdir / "run_info.json").write_text(json.dumps(info))
    (workdir / "config.json").write_text(json.dumps(config or {}))
    for name, values in collections.items():
        (workdir / name).mkdir()
        append_values(workdir / name, values, start=start)
    return workdir


def append_values(folder, values, *, first=0, start=1_700_000_000.0):
    """Add a line for each step from `first` on."""
    with (folder / "scalars.jsonl").open("a") as file:
        for step, numbers in enumerate(values, first):
            entry = {"step": step, "time": start + step, "values": numbers}
            file.write(json.dumps(entry) + "\n")
