"""Workdirs: which there are below a folder, and what each says about its run."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kauldron.files import holder
from kauldron.inspect.scalar_log import FILENAME, ScalarLog, file_version

_DEEPEST = 5
_NOT_RUNS = {"checkpoints", "plugins", "array_dumps", "logs"}
# Fields that differ between any two runs and say nothing about them.
_DULL = re.compile(r"^(workdir|setup\.(tags|note_template)(\..*|\[.*)?)$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One workdir. Files are read when they are asked for, and again when they change.

    Links are not followed: what is shown of a run is inside its folder.

    Attributes:
      name: The path from the folder that was searched; the name of the folder itself
        if that is the workdir.
      workdir: The folder of the run.
    """

    name: str
    workdir: pathlib.Path

    @functools.cached_property
    def _files(self) -> dict[pathlib.Path, tuple[Any, Any]]:
        return {}

    @functools.cached_property
    def _logs(self) -> dict[str, ScalarLog]:
        return {}

    @property
    def info(self) -> dict[str, Any]:
        """What `run_info.json` says; empty if it cannot be read."""
        return self._json("run_info.json")

    @property
    def config(self) -> dict[str, Any]:
        """The values of `config.json` by path; empty if there is none."""
        return self._json("config.json", flatten_config)

    @property
    def state(self) -> str:
        """`complete`, `running`, `stopped`, `failed` or `pending`."""
        if (self.workdir / "train_complete.txt").exists():
            return "complete"
        if holder(self.workdir / "train.lock") is not None:
            return "running"
        jobs = [path.name for path in self.workdir.glob(".kxm/status/*.json")]
        states = [self._json(f".kxm/status/{name}").get("state") for name in jobs]
        states += ["failed"] if self._end.get("reason") == "error" else []
        return next((s for s in ("failed", "pending") if s in states), "stopped")

    @property
    def end(self) -> str | None:
        """Why it ended, where that is not what was planned, in a word or two.

        `early stopping`, `preempted`, `interrupted`, the type of an error, or `killed`.
        """
        state = self.state
        if state in ("running", "pending"):
            return None
        reason = self._end.get("reason")
        if reason is None:
            is_killed = "end" in self.info and state != "complete"
            return "killed" if is_killed else None
        if reason == "error":
            return str(self._end.get("error") or "error")
        return None if reason == "done" else str(reason)

    @property
    def _end(self) -> dict[str, Any]:
        end = self.info.get("end")
        return end if isinstance(end, dict) else {}

    @property
    def started(self) -> float | None:
        """When it was started for the first time, in seconds since 1970."""
        times = [
            start.get("time")
            for start in _as_list(self.info.get("starts"))
            if isinstance(start, dict)
        ]
        return next((time for time in times if isinstance(time, int | float)), None)

    @property
    def step(self) -> int | None:
        """The newest step that is known."""
        steps = [step for step, _ in self.last().values()]
        done = self._json("train_complete.txt").get("step")
        for known in (self.info.get("saved_step"), done):
            steps += [known] if isinstance(known, int) else []
        steps += [
            int(number)
            for entry in _entries(self.workdir / "checkpoints")
            if (number := entry.name.removeprefix("ckpt_")).isdecimal()
        ]
        return max(steps, default=None)

    @property
    def num_steps(self) -> int | None:
        """How many steps the config asks for."""
        count = self.config.get("num_train_steps")
        return count if isinstance(count, int) else None

    @property
    def speed(self) -> float | None:
        """Steps per second, as last written."""
        found = self.last().get("train/perf_stats/steps_per_sec")
        return None if found is None else found[1]

    def summary(self) -> dict[str, Any]:
        """Return what can be told of any run, for JSON."""
        return {
            "state": self.state,
            "end": self.end,
            "step": self.step,
            "num_steps": self.num_steps,
            "speed": self.speed,
            "started": self.started,
            "tags": [str(tag) for tag in self.info.get("tags") or []],
            "note": str(self.info.get("note") or ""),
        }

    def logs(self) -> dict[str, ScalarLog]:
        """Return the log of each collection: `train`, and the evaluators."""
        folders = {e.name for e in _entries(self.workdir) if _is_folder(e)}
        for name in folders - self._logs.keys() - _NOT_RUNS:
            path = self.workdir / name / FILENAME
            if path.exists() and not path.is_symlink():
                self._logs[name] = ScalarLog(path)
        ordered = sorted(self._logs, key=lambda name: (name != "train", name))
        return {name: self._logs[name] for name in ordered}

    def last(self) -> dict[str, tuple[int, float]]:
        """Return the last step and value by full name, such as `test/metrics/accuracy`."""
        return {
            f"{collection}/{name}": value
            for collection, log in self.logs().items()
            for name, value in log.last().items()
        }

    def best(self, name: str, *, smallest: bool) -> tuple[int, float] | None:
        """Return the step and value of a metric where it was best."""
        collection, _, scalar = name.partition("/")
        log = self.logs().get(collection)
        found = log.extremes().get(scalar) if log is not None else None
        if found is None:
            return None
        step = found.low_step if smallest else found.high_step
        return None if step is None else (step, found.low if smallest else found.high)

    @property
    def version(self) -> tuple[Any, ...]:
        """What changes when the run writes something or changes its state."""
        files = ("run_info.json", "config.json", "train_complete.txt", "train.lock")
        return (
            self.state,
            *(file_version(self.workdir / file) for file in files),
            *((name, log.version) for name, log in self.logs().items()),
        )

    def _json(self, name: str, convert: Any = lambda content: content) -> Any:
        path = self.workdir / name
        version = file_version(path)
        known = self._files.get(path)
        if known is None or known[0] != version:
            try:
                content = {} if path.is_symlink() else json.loads(path.read_bytes())
            except (OSError, ValueError):
                content = {}
            content = convert(content) if isinstance(content, dict) else {}
            known = self._files[path] = (version, content)
        return known[1]


def find_runs(folder: str | os.PathLike[str], known: Iterable[Run] = ()) -> list[Run]:
    """Return the runs of all workdirs in a folder, the folder itself included.

    Runs of an earlier search are returned again, with what they have read.
    """
    root = pathlib.Path(folder)
    earlier = {run.workdir: run for run in known}
    found = sorted(_workdirs(root, _DEEPEST), key=lambda path: _natural(str(path)))
    return [
        earlier.get(path) or Run(name=_name_of(path, root), workdir=path)
        for path in found
    ]


def _workdirs(folder: pathlib.Path, depth: int) -> Iterable[pathlib.Path]:
    inside = _entries(folder)
    if any(
        entry.name in ("run_info.json", "run_info.json.unreadable") for entry in inside
    ):
        yield folder
    elif depth:
        for entry in inside:
            is_hidden = entry.name.startswith(".") or entry.name in _NOT_RUNS
            if not is_hidden and _is_folder(entry):
                yield from _workdirs(pathlib.Path(entry.path), depth - 1)


def _name_of(path: pathlib.Path, root: pathlib.Path) -> str:
    return path.resolve().name if path == root else path.relative_to(root).as_posix()


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort `2` before `10`."""
    parts = re.split(r"(\d+)", text)
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in parts]


def _entries(folder: pathlib.Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # removed in the meantime, or not ours to read
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


#
# Configs
#


def flatten_config(config: Any, path: str = "") -> dict[str, Any]:
    """Return the values of a saved config by path. What a node calls is its value.

    Example:
      >>> flatten_config({"model": {"__qualname__": "my.nets:Net", "sizes": [8, 16]}})
      {'model': 'Net', 'model.sizes[0]': 8, 'model.sizes[1]': 16}
    """
    if isinstance(config, dict):
        flat: dict[str, Any] = {}
        for key, value in config.items():
            if key in ("__qualname__", "__const__"):
                if path:  # what all of it builds is a trainer
                    flat[path] = re.split(r"[.:]", str(value))[-1]
            elif key != "__id__":  # nodes with the same one are one node
                flat |= flatten_config(value, f"{path}.{key}" if path else str(key))
        return flat
    if isinstance(config, list):
        return {
            inner: value
            for index, item in enumerate(config)
            for inner, value in flatten_config(item, f"{path}[{index}]").items()
        }
    return {path: config}


def differing_fields(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the paths whose values are not the same in all configs.

    Example:
      >>> differing_fields([{"seed": 0, "lr": 1.0}, {"seed": 1, "lr": 1.0}])
      ['seed']
    """
    configs = [config for config in configs if config]
    paths = dict.fromkeys(path for config in configs for path in config)
    missing = object()
    return [
        path
        for path in paths
        if not _DULL.match(path)
        and len({_hashable(config.get(path, missing)) for config in configs}) > 1
    ]


def _hashable(value: Any) -> Any:
    return (type(value) is bool, value)  # True is not 1 here


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Return the shortest end of each path that no other path ends with.

    Example:
      >>> short_names(["optimizer.learning_rate", "train_ds.seed", "eval_ds.seed"])
      {'optimizer.learning_rate': 'learning_rate', 'train_ds.seed': 'train_ds.seed', 'eval_ds.seed': 'eval_ds.seed'}
    """
    ends = {path: _ends(path.split(".")) for path in paths}
    users = collections.Counter(itertools.chain.from_iterable(ends.values()))
    names = {}
    for path, candidates in ends.items():
        readable = (e for e in candidates if users[e] == 1 and not e[0].isdecimal())
        names[path] = next(readable, path)
    return names


def _ends(parts: list[str]) -> list[str]:
    """Return all ends of a path, the shortest first."""
    return [".".join(parts[start:]) for start in reversed(range(len(parts)))]
