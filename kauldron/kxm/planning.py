"""Makes and checks all work units of an experiment.

Nothing is written and no id is needed, so that everything that can be wrong is found
before anything is started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import logging
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kauldron.errors import error_prefix
from kauldron.konfig.overrides.overrides import ARGS_KEY
from kauldron.kxm import command, folders, records
from kauldron.kxm.config_provider import ConfigProvider, config_argument
from kauldron.kxm.engines import executor_of
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob
from kauldron.kxm.folders import DirectoryBuilder
from kauldron.kxm.jobs import Job, Platform
from kauldron.kxm.kauldron_jobs import JobsProvider
from kauldron.kxm.sweeps import SweepInfo, SweepItem
from kauldron.kxm.sweeps.search import SAMPLER_PACKAGES, Search

if TYPE_CHECKING:
    from kauldron.kxm.experiment import Experiment

_log = logging.getLogger("kauldron.kxm")


def plan(
    xp: Experiment, *, xid: int | str, created: float, first_wid: int = 1
) -> list[WorkUnit]:
    """Return all work units of an experiment; see `Experiment.work_units`."""
    sweep = xp.linked_sweep
    items = _effective_items(xp, sweep)
    if len(items) > xp.max_work_units:
        raise ValueError(
            f"The sweep has {len(items)} work units, more than max_work_units="
            f"{xp.max_work_units}. Raise it with --xp.max_work_units={len(items)} if "
            "that is what you want."
        )
    planner = _Planner(
        experiment_id=xid,
        name=xp.full_name,
        created=created,
        num_work_units=len(items) + first_wid - 1,
        xp=xp,
        first_wid=first_wid,
        search=adaptive_search(xp, sweep),
    )
    _ = planner.xp_dir  # complain now if it depends on the work unit
    if planner.search is not None:
        for probe in planner.search.probes():
            planner.jobs_for(probe)
    xp.orchestrator.launch_jobs(
        resolved_jobs=xp.resolved_jobs,
        sweep_info=_Effective(items=tuple(items)),
        dir_builder=planner.dir_builder,
    )
    units = planner.units
    if not units:
        raise ValueError(f"{type(xp.orchestrator).__name__} made no work units.")
    by_folder: dict[pathlib.Path, WorkUnit] = {}
    for unit in units:
        other = by_folder.setdefault(unit.folder, unit)
        if other is not unit:
            raise ValueError(
                f"The work units {other.wid} and {unit.wid} would share the folder "
                f"{unit.folder}. Use {{wid}} in subdir_format.wu_dirname."
            )
    return units


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Effective(SweepInfo):
    """The items of a sweep that are left after the user's flags."""

    items: tuple[SweepItem, ...]

    def __iter__(self) -> Any:
        return iter(self.items)


def adaptive_search(xp: Experiment, sweep: SweepInfo) -> Search | None:
    """Return the adaptive search of an experiment without what flags decide."""
    search: Search | None = sweep.adaptive
    if search is None:
        return None
    if importlib.util.find_spec("optuna") is None:
        raise ImportError(
            f"method={search.method!r} needs Optuna: pip install 'kauldron[optuna]'"
        )
    packages = SAMPLER_PACKAGES.get(str(search.method), ())
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"method={search.method!r} needs more than Optuna: pip install "
            f"{' '.join(missing)}. method='tpe' needs nothing else."
        )
    left = search.without(_decided(xp))
    for key in search.space:
        if key not in left.space:
            _log.warning("%s is given as a flag: it is not searched.", key)
    return left


def _decided(xp: Experiment) -> set[str]:
    """Return the flags of the config that the user has given."""
    overrides = xp.cfg_provider.overrides if xp.cfg_provider is not None else {}
    return {f"cfg.{path}" for path in overrides}


def _effective_items(xp: Experiment, sweep: SweepInfo) -> list[SweepItem]:
    """Return the items of a sweep without what the user's flags decide."""
    items = list(sweep)
    if not items:
        raise ValueError("The sweep has no work units.")
    decided = _decided(xp)
    swept = {key for item in items for key in item.job_kwargs}
    if not decided & swept:
        return items
    for key in sorted(decided & swept):
        _log.warning("--%s is given as a flag: the sweep over it has no effect.", key)
    left = []
    for item in items:
        kwargs = {k: v for k, v in item.job_kwargs.items() if k not in decided}
        shown = {
            k: v
            for k, v in (item.xm_ui_kwargs or {}).items()
            if k not in decided and f"cfg.{k}" not in decided
        }
        changed = dataclasses.replace(item, job_kwargs=kwargs, xm_ui_kwargs=shown)
        if changed.job_kwargs not in [other.job_kwargs for other in left]:
            left.append(changed)
    return left


@dataclasses.dataclass(kw_only=True)
class _Planner(folders.ExperimentInfo):
    """What orchestrators know as `ctx.xp`: collects the work units."""

    xp: Experiment
    first_wid: int
    search: Search | None
    units: list[WorkUnit] = dataclasses.field(default_factory=list)
    last: tuple[SweepItem, dict[str, Any], ConfigProvider] | None = None

    @functools.cached_property
    def dir_builder(self) -> DirectoryBuilder:
        """Knows this experiment."""
        return self.xp.dir_builder.replace_ctx(xp=self)

    @functools.cached_property
    def xp_dir(self) -> pathlib.Path:
        """The folder with the records, which have to be on this file system."""
        if "://" in self.dir_builder.xp_dir:
            return records.home() / "xp" / str(self.experiment_id)
        return pathlib.Path(self.dir_builder.xp_dir)

    @functools.cached_property
    def in_copy(self) -> Callable[[str], str]:
        """Makes the paths in an argument point into the copy of the code, if any."""
        if not self.xp.snapshot:
            return lambda argument: argument
        return command.paths_in_copy(self.xp, self.xp_dir)

    def jobs_for(self, item: SweepItem) -> Mapping[str, Job]:
        """Return the jobs of a sweep item, which may change their parameters."""
        with self._errors_of(item):
            provider = self._provider_for(item, self.xp.resolved_jobs)
            if provider is None or provider is self.xp.cfg_provider:
                return self.xp.resolved_jobs
            linked: JobsProvider = self.xp.jobs_provider.with_config(provider)
            if not linked.depends_on(self._config_values(item, self.xp.resolved_jobs)):
                return self.xp.resolved_jobs
            return self.xp.merged_jobs(linked)

    def add_work_unit(self, jobs: Mapping[str, Job], sweep_item: SweepItem) -> WorkUnit:
        """Add a work unit with these jobs, changed by the item."""
        wid = self.first_wid + len(self.units)
        builder = self.dir_builder.replace_ctx(
            wu=folders.WorkUnitInfo(work_unit_id=wid), sweep_item=sweep_item
        )
        with self._errors_of(sweep_item):
            unit = self._make(jobs, sweep_item, builder, wid)
        self.units.append(unit)
        return unit

    def _errors_of(self, item: SweepItem) -> Any:
        if not item.job_kwargs:
            return contextlib.nullcontext()
        wid = self.first_wid + len(self.units)
        origin = f" ({item.origin})" if item.origin else ""
        return error_prefix(f"Work unit {wid}{origin}: ")

    def _provider_for(
        self, item: SweepItem, jobs: Mapping[str, Job]
    ) -> ConfigProvider | None:
        provider = self.xp.cfg_provider
        values = self._config_values(item, jobs)
        if provider is None or not values:
            return provider
        # Slow, and asked for twice in a row: for the parameters of jobs and their flags.
        last = self.last
        if last is None or last[0] is not item or last[1] != values:
            self.last = last = (item, values, provider.for_sweep(values))
        return last[2]

    def _config_values(
        self, item: SweepItem, jobs: Mapping[str, Job]
    ) -> dict[str, Any]:
        """Return what an item changes in the config."""
        names = {name for name in map(config_argument, jobs.values()) if name}
        return {
            key.removeprefix(f"{name}."): _without_numpy(value)
            for name in names
            for key, value in item.job_kwargs.items()
            if key.startswith(f"{name}.")
        }

    def _make(
        self,
        jobs: Mapping[str, Job],
        item: SweepItem,
        builder: DirectoryBuilder,
        wid: int,
    ) -> WorkUnit:
        provider = self._provider_for(item, jobs)
        workdir = builder.wu_dir
        folder = pathlib.Path(workdir)
        if "://" in workdir:
            below = workdir.removeprefix(self.dir_builder.xp_dir).lstrip("/")
            folder = self.xp_dir / below
        unit = WorkUnit(
            wid=wid,
            xid=self.experiment_id,
            xp_dir=self.xp_dir,
            folder=folder,
            workdir=workdir,
            ui=dict(item.xm_ui_kwargs or {}),
            jobs={},
            num_work_units=self.num_work_units,
            search=self.search is not None,
        )
        made = {}
        for name, job in jobs.items():
            with error_prefix(f"Job {name!r}: "):
                made[name] = self._job(job, item, unit, provider)
        # After the jobs: their errors name the argument whose value has no text.
        sweep = {k: command.plain(v) for k, v in item.job_kwargs.items()}
        return dataclasses.replace(unit, jobs=made, sweep=sweep)

    def _job(
        self,
        job: Job,
        item: SweepItem,
        unit: WorkUnit,
        provider: ConfigProvider | None,
    ) -> WorkUnitJob:
        executor = executor_of(job.executor)
        _check_parameters(job)
        files = _files(job, self.xp_dir)
        fill = command.placeholder_filler(
            wu_dir=unit.workdir, xp_dir=self.dir_builder.xp_dir, files=files
        )
        cwd = os.path.abspath(fill(job.cwd) if job.cwd else os.getcwd())
        argv = command.target_argv(job.replace(target=fill(job.target)), cwd=cwd)
        complete, config_flag = _with_arguments(job, item, provider)
        search_at = len(argv) + _number_of_first(complete, config_flag)
        flags = command.flags(complete, fill, config_flag)
        texts = {}
        if command.is_too_long(flags):
            path = str(records.private(unit.folder) / f"{job.name}.flags")
            texts[path] = "".join(f"{flag}\n" for flag in flags)
            flags = [f"--flagfile={path}"]
        env = command.jax_environment(
            job,
            wu_dir=unit.workdir,
            xp_dir=str(self.xp_dir),
            compilation_cache=self.xp.compilation_cache,
            is_set=os.environ,
        )
        if self.xp.snapshot:
            env["PYTHONPATH"] = command.python_path(self.xp_dir)
        env |= {str(k): str(fill(v)) for k, v in job.env_vars.items()}
        return WorkUnitJob(
            name=job.name or "",
            argv=tuple(map(self.in_copy, [*argv, *flags])),
            env=env,
            cwd=self.in_copy(cwd),
            after=dict(job.after),
            platform=job.platform,
            requirements=job.requirements,
            restart=executor.restart,
            max_restarts=executor.max_restarts,
            grace_s=executor.grace_s,
            texts=texts,
            search_at=search_at if self.search is not None else None,
            files={copy: _source_file(job.files[name]) for name, copy in files.items()},
        )


def _without_numpy(value: Any) -> Any:
    return value.tolist() if hasattr(type(value), "tolist") else value


def _with_arguments(
    job: Job,
    item: SweepItem,
    provider: ConfigProvider | None,
) -> tuple[Job, str | None]:
    """Return the job with its config and the values of the sweep as arguments."""
    config_flag = config_argument(job)
    if config_flag is not None:
        if provider is None:
            raise ValueError(
                f"--{config_flag} is kxm.CFG_FLAG_VALUES, but there is no config. Give "
                f"--cfg=path/to/config.py."
            )
        job = provider.maybe_add_cfg_flags(job)
    new = {
        key: value
        for key, value in item.job_kwargs.items()
        if config_flag is None or not key.startswith(f"{config_flag}.")
    }
    return job.replace(args={**job.args, **new}), config_flag


def _number_of_first(job: Job, config_flag: str | None) -> int:
    """Return how many arguments come before those of a sweep: the config and its own."""
    if config_flag is None:
        return len(job.args)
    own = f"{config_flag}.{ARGS_KEY}"
    return sum(name == config_flag or name.startswith(own) for name in job.args)


def _check_parameters(job: Job) -> None:
    """Refuse parameters that cannot work, or contradict each other."""
    if job.requirements.other:
        names = ", ".join(job.requirements.other)
        _log.warning("Job %r: the requirements %s have no effect.", job.name, names)
    if job.debug.catch_post_mortem:
        raise ValueError(
            "debug.catch_post_mortem needs a terminal, which launched jobs do not have. "
            "Use `kauldron train --catch_post_mortem`."
        )
    gpus = job.requirements.gpus
    if job.platform is None or gpus is None:
        return
    platform = Platform.parse(job.platform)
    asked = platform.count if platform.kind == "gpu" else 0
    if asked != gpus:
        raise ValueError(
            f"platform={job.platform!r} and requirements.gpus={gpus} contradict each "
            "other: set only one of them."
        )


def _files(job: Job, xp_dir: pathlib.Path) -> dict[str, str]:
    """Return the paths of the copies of a job's files, by the names of the files."""
    for name, source in job.files.items():
        if os.sep in name or name in ("", ".", ".."):
            raise ValueError(
                f"files: {name!r} must be the plain name of a file, without a folder."
            )
        if not pathlib.Path(_source_file(source)).is_file():
            raise FileNotFoundError(f"files[{name!r}]: there is no file {source}.")
    folder = records.private(xp_dir) / "files" / (job.name or "")
    return {name: str(folder / name) for name in job.files}


def _source_file(source: str) -> str:
    if source.startswith("//"):
        return os.path.join(command.git_top(".") or ".", source.removeprefix("//"))
    return os.path.abspath(os.path.expanduser(source))
