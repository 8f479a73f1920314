"""Adaptive search: work units that ask for their values when they start.

Nobody has to stay alive to steer a search: `search.json` says what is searched, and a
journal file of Optuna, `study.log`, is all that the work units share. The runner of the
first job of a work unit asks for values and writes them into the record of the work unit,
where restarts and the other jobs find them. Whoever ends last tells the objective.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kauldron.kxm import records
from kauldron.kxm.folders import sweep_text
from kauldron.kxm.handle import last_scalars, metric_points, reduced

_POLL_SECONDS = 0.2
_STUDY = "kauldron"
INSTALL = "pip install 'kauldron[optuna]'"


class Binding:
    """What a runner does for an adaptive search, given a work unit and its record."""

    def __init__(self, folder: pathlib.Path, unit: Mapping[str, Any], job: str) -> None:
        self.folder = folder
        self.xp_dir = pathlib.Path(unit["xp_dir"])
        self.search = records.read_json(records.private(self.xp_dir) / "search.json")
        self._wid = unit["wid"]
        self._workdir = pathlib.Path(unit["workdir"])
        # The first job asks for the values, and is the one that is pruned.
        self._is_first = job == next(iter(unit["jobs"]))
        self._trial: Any = None
        self._reported = 0

    def bind(self, is_told_to_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Return the record of the work unit with its values; None if told to stop."""
        while True:
            unit = records.read_unit(self.folder)
            if "trial" in unit:
                return unit
            if self._is_first:
                return self._ask(unit)
            if is_told_to_stop():
                return None
            time.sleep(_POLL_SECONDS)

    def _ask(self, unit: dict[str, Any]) -> dict[str, Any]:
        study = self.study()
        with _one_at_a_time(self.xp_dir):
            trial = study.ask(_distributions(self.search["space"]))
        trial.set_user_attr("wid", self._wid)
        self._trial = trial
        values, texts, shown = chosen(self.search, trial.params)
        for job in unit["jobs"].values():
            flags = [f"--{name}={text}" for name, text in texts.items()]
            at = job.get("search_at", len(job["argv"]))
            job["argv"][at:at] = flags
        unit |= {"sweep": values, "ui": {k: str(v) for k, v in shown.items()}}
        unit["trial"] = {"number": trial.number, "id": trial._trial_id}
        records.write_unit(self.folder, unit)
        _link(self.xp_dir, self.folder, f"{self._wid}-{sweep_text(shown)}")
        return unit

    def study(self) -> Any:
        """Open the study, or create it."""
        return open_study(self.xp_dir, self.search, self._wid)

    #
    # While it runs
    #

    def should_prune(self) -> bool:
        """Return whether the run is not promising, compared to the others."""
        if not self.search["prune"] or not self._is_first:
            return False
        return self._report() and self._trial.should_prune()

    def _report(self) -> bool:
        """Report the values that are new; return whether there were any."""
        points = self._points()
        new, self._reported = points[self._reported :], len(points)
        if new and self._trial is None:
            self._trial = self._trial_of_before()
        if self._trial is None:
            return False
        for step, value in new:
            self._trial.report(value, step)
        return bool(new)

    def _trial_of_before(self) -> Any:
        """Return the trial of an earlier attempt; `None` if that trial is finished."""
        import optuna

        trial = records.read_unit(self.folder)["trial"]
        study = self.study()
        if study.trials[trial["number"]].state.is_finished():
            return None
        return optuna.trial.Trial(study, trial["id"])

    def _points(self) -> list[tuple[int, float]]:
        return metric_points(self.folder, self._workdir, self.search["metric"])

    #
    # At the end
    #

    def conclude(self) -> str | None:
        """Report the objective if the work unit has ended; return a problem, if any."""
        unit = records.read_unit(self.folder)
        statuses = [records.read_status(self.folder, job) for job in unit["jobs"]]
        state = records.state_of_unit(statuses)
        # One that was stopped is to be resumed with the same values.
        is_over = state in records.FINAL and state != records.STOPPED
        return self._tell(unit, state) if is_over and "trial" in unit else None

    def _tell(self, unit: dict[str, Any], state: str) -> str | None:
        from optuna.trial import TrialState

        study = self.study()
        number = unit["trial"]["number"]
        points = self._points()
        if self.search["prune"]:  # what later runs are compared with
            self._report()
        has_succeeded = state == records.SUCCEEDED
        value = self._objective(points) if has_succeeded and points else math.nan
        if math.isfinite(value):
            study.tell(number, value, skip_if_finished=True)
        else:
            told = TrialState.PRUNED if state == records.PRUNED else TrialState.FAIL
            study.tell(number, state=told, skip_if_finished=True)
        if points or not has_succeeded:
            return None
        known = ", ".join(sorted(last_scalars(self._workdir))) or "none"
        return f"there is no value {self.search['metric']!r}; there are: {known}"

    def _objective(self, points: list[tuple[int, float]]) -> float:
        reduce = self.search["reduce"]
        reduce = self.search["goal"] if reduce == "best" else reduce
        return reduced(points, reduce)[1]


def open_study(xp_dir: pathlib.Path, search: Mapping[str, Any], wid: int = 0) -> Any:
    """Open the study of an experiment, or create it.

    Raises:
      ImportError: Optuna is not installed.
    """
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise ImportError(f"An adaptive search needs Optuna: {INSTALL}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = records.private(xp_dir) / "study.log"
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(path))),
        study_name=_STUDY,
        sampler=_sampler(search, wid),
        pruner=_pruner(search["prune"]),
        direction="minimize" if search["goal"] == "min" else "maximize",
        load_if_exists=True,
    )


@contextlib.contextmanager
def _one_at_a_time(xp_dir: pathlib.Path) -> Iterator[None]:
    """Let no other work unit ask: samplers such as `qmc` could give both the same."""
    from optuna.storages.journal import JournalFileSymlinkLock

    lock = JournalFileSymlinkLock(
        str(records.private(xp_dir).resolve() / "search.json")
    )
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _sampler(search: Mapping[str, Any], wid: int) -> Any:
    from optuna import samplers

    method, seed = search["method"], search["seed"]
    own = seed * 100003 + wid  # workers with one seed would all ask for the same
    match method:
        case "tpe":
            return samplers.TPESampler(seed=own, constant_liar=True)
        case "gp":
            return samplers.GPSampler(seed=own)
        case "cmaes":
            return samplers.CmaEsSampler(seed=own)
        case "qmc":
            return samplers.QMCSampler(seed=seed)  # one sequence for all
        case "nsga2":
            return samplers.NSGAIISampler(seed=own)
    from kauldron import konfig

    return konfig.resolve(konfig.ConfigDict(method))


def _pruner(name: str | None) -> Any:
    from optuna import pruners

    if name == "median":
        return pruners.MedianPruner(n_startup_trials=4)
    if name == "asha":
        return pruners.SuccessiveHalvingPruner()
    return pruners.NopPruner()


def _distributions(space: Mapping[str, Any]) -> dict[str, Any]:
    from optuna import distributions as d

    result: dict[str, Any] = {}
    for key, entry in space.items():
        if entry["kind"] == "choice":  # by index: options may be anything
            indices = list(range(len(entry["options"])))
            result[key] = d.CategoricalDistribution(indices)
        elif entry["kind"] == "integers":
            bounds = entry["low"], entry["high"]
            step = entry["step"] or 1
            result[key] = d.IntDistribution(*bounds, log=entry["log"], step=step)
        elif entry["kind"] == "numbers":
            bounds = entry["low"], entry["high"]
            result[key] = d.FloatDistribution(
                *bounds, log=entry["log"], step=entry["step"]
            )
    return result


def chosen(
    search: Mapping[str, Any], params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """Return the values that a trial chose: as data, as flag texts, and for display."""
    values, texts, shown = {}, {}, {}
    for key, entry in search["space"].items():
        name = f"{search['prefix']}{key}"
        if entry["kind"] in ("integers", "numbers"):
            values[name] = shown[key] = params[key]
            texts[name] = repr(params[key])
            continue
        option = entry["options"][params.get(key, 0)]
        values[name], texts[name] = option["value"], option["text"]
        shown[key] = option["shown"]
    return values, texts, shown


def _link(xp_dir: pathlib.Path, folder: pathlib.Path, name: str) -> None:
    """Give the folder of a work unit a name that tells its values."""
    path = xp_dir / name
    if not path.exists() and not path.is_symlink():
        path.symlink_to(os.path.relpath(folder, xp_dir), target_is_directory=True)
