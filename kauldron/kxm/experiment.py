"""The root object: what to launch, where and how."""

from __future__ import annotations

import dataclasses
import functools
import graphlib
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kauldron.errors import did_you_mean, error_prefix
from kauldron.kxm import folders, merging
from kauldron.kxm.config_provider import ConfigProvider
from kauldron.kxm.engines import executor_of
from kauldron.kxm.engines.executor import Executor
from kauldron.kxm.engines.work_units import WorkUnit
from kauldron.kxm.folders import DirectoryBuilder, SubdirFormat
from kauldron.kxm.jobs import Job, JobParams
from kauldron.kxm.kauldron_jobs import JobsProvider, NoJobs
from kauldron.kxm.sweeps import Names, NoSweep, SweepInfo

if TYPE_CHECKING:
    from kauldron.from_xid import ExperimentRun
    from kauldron.kxm.handle import ExperimentHandle

UNKNOWN_XID = "<xid>"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Orchestrator:
    """Makes work units from jobs and a sweep."""

    def launch_jobs(
        self,
        *,
        resolved_jobs: Mapping[str, Job],
        sweep_info: SweepInfo,
        dir_builder: DirectoryBuilder,
    ) -> None:
        """Call `dir_builder.ctx.xp.add_work_unit(jobs, sweep_item)` for each work unit.

        Args:
          resolved_jobs: The jobs by name, without the values of the sweep.
          sweep_info: The sweep.
          dir_builder: Knows the experiment.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define launch_jobs.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOrchestrator(Orchestrator):
    """Makes one work unit with all jobs for each item of the sweep."""

    def launch_jobs(
        self,
        *,
        resolved_jobs: Mapping[str, Job],
        sweep_info: SweepInfo,
        dir_builder: DirectoryBuilder,
    ) -> None:
        del resolved_jobs  # a sweep over job parameters changes them
        xp = dir_builder.ctx.xp
        for item in sweep_info:
            jobs = self.update_jobs(xp.jobs_for(item), item)
            xp.add_work_unit(jobs, item)

    def update_jobs(
        self, jobs: Mapping[str, Job], sweep_item: Any
    ) -> Mapping[str, Job]:
        """Return the jobs of one work unit; for subclasses that change them."""
        del sweep_item
        return jobs


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Experiment(JobParams):
    """What to launch: jobs, a sweep over them, and an engine.

    The parameters of a job may be given here, for all jobs.

    Attributes:
      name: By default made of the names of the config and its folder.
      tags: A list, or texts separated by commas.
      note: Free text.
      jobs: Jobs by name, merged over those of the provider.
      jobs_provider: Computes jobs, as `kxm.KauldronJobs` from a trainer's config.
      root_dir: Where folders are made; may contain `~`, `$VAR` and fields such as
        `{name}`. By default `$KAULDRON_ROOT_DIR`, else `~/kauldron`.
      subdir_format: What the folders below `root_dir` are called.
      sweep: Which sweep functions of the config, or False for none.
      sweep_info: The sweep.
      orchestrator: Makes work units from jobs and sweep.
      cfg_provider: The config to hand on to jobs.
      aux: Values of yours, which are stored.
      xid: An existing experiment to add work units to.
      snapshot: Whether to run from a copy of the git repository around the config.
      max_work_units: Refuse sweeps with more.
      compilation_cache: Whether work units share what jax compiled.
      engine: Another name for `executor`.
      flags: The paths in this object that were typed on the command line: they win over
        what configs say.
      importance: Has no effect, like all fields that follow.

    Example:
      >>> from kauldron import kxm
      >>> xp = kxm.Experiment(
      ...     jobs={"main": kxm.Job(target=["echo", "hello"])},
      ...     sweep_info=kxm.SimpleSweep([{"seed": 0}, {"seed": 1}]),
      ... )
      >>> [unit.jobs["main"].argv for unit in xp.work_units()]
      [('echo', 'hello', '--seed=0'), ('echo', 'hello', '--seed=1')]
    """

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    name: str | None = None
    tags: Sequence[str] | str = ()
    note: str = ""
    jobs: Mapping[str, Job] = dataclasses.field(default_factory=dict)
    jobs_provider: JobsProvider = dataclasses.field(default_factory=NoJobs)
    root_dir: str | None = None
    subdir_format: SubdirFormat = dataclasses.field(default_factory=SubdirFormat)
    sweep: Names = None
    sweep_info: SweepInfo = dataclasses.field(default_factory=NoSweep)
    orchestrator: Orchestrator = dataclasses.field(default_factory=SweepOrchestrator)
    cfg_provider: ConfigProvider | None = None
    aux: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    xid: int | None = None
    snapshot: bool = False
    max_work_units: int = 1000
    compilation_cache: bool = True
    engine: Any = None
    flags: Sequence[str] = ()
    importance: Any = None
    execution_settings: Any = None
    attribution_urls: Any = ()
    emoji_tags: Any = False
    add_tensorboard_borg: Any = False
    add_tensorboard_corp: Any = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine is not None:  # as if `executor=` had been given
            object.__setattr__(self, "executor", self.engine)
            object.__setattr__(self, "_given", {**self._given, "executor": self.engine})

    #
    # What follows from the fields
    #

    @staticmethod
    def from_xid(xid: int, wid: int = 1) -> ExperimentRun:
        """Return a work unit of an experiment that was launched, with its config.

        Args:
          xid: The id of the experiment.
          wid: The number of the work unit.

        Raises:
          LookupError: There is no such experiment or work unit.
        """
        from kauldron.from_xid import ExperimentRun

        run = ExperimentRun(xid, wid)
        _ = run.wu  # complain now
        return run

    @property
    def linked_jobs_provider(self) -> JobsProvider:
        """The provider, which knows the config."""
        return self.jobs_provider.with_config(self.cfg_provider)

    @property
    def linked_sweep(self) -> SweepInfo:
        """The sweep, which knows the config and the chosen functions."""
        chosen = self.sweep_info.with_names(self.sweep)
        return chosen.replace_with_jobs_provider(self.linked_jobs_provider)

    @functools.cached_property
    def resolved_jobs(self) -> dict[str, Job]:
        """The jobs by name, with all parameters merged; without the sweep."""
        return self.merged_jobs(self.linked_jobs_provider)

    def merged_jobs(self, provider: JobsProvider) -> dict[str, Job]:
        """Return the jobs of a provider, merged with those of the experiment.

        Raises:
          ValueError: There are no jobs, or places contradict each other.
          TypeError: Places give values of different types.
        """
        sources = dict(provider.sources)
        for name, job in self.jobs.items():
            self._check_job(name, job, list(sources))
            start = f"jobs.{name}."
            flags = [f.removeprefix(start) for f in self.flags if f.startswith(start)]
            source = merging.Source(
                label=f"xp.jobs[{name!r}]",
                params=job,
                flags=frozenset(flags),
                flag=f"--xp.jobs.{name}",
            )
            sources[name] = [*sources.get(name, []), source]
        if not sources:
            raise ValueError(
                "The experiment has no jobs. Set `jobs={'main': kxm.Job(target=...)}`, "
                "or `jobs_provider=kxm.KauldronJobs()` with a config."
            )
        own = [f for f in self.flags if not f.startswith("jobs.")]
        experiment = merging.Source(
            label="the experiment", params=self, flags=frozenset(own), flag="--xp"
        )
        jobs = {}
        for name, places in sources.items():
            with error_prefix(f"Error for job {name!r}: "):
                jobs[name] = merging.merge_sources([*places, experiment])
            jobs[name] = jobs[name].replace(name=name)
        _check_order(jobs)
        return jobs

    def _check_job(self, name: str, job: Job, provided: list[str]) -> None:
        """Refuse a job that has nothing to run, which may be a wrong name."""
        runs_something = job.target or self.target or job.interpreter_info.script_path
        if name not in provided and provided and not runs_something:
            raise ValueError(
                f"There is no job {name!r}.{did_you_mean(name, provided)} There are "
                f"{', '.join(provided)}; a new one needs a target."
            )

    @property
    def common_executor(self) -> Executor:
        """The engine of all jobs.

        Raises:
          ValueError: Jobs ask for different ones.
        """
        engines = {n: executor_of(j.executor) for n, j in self.resolved_jobs.items()}
        if len({type(engine) for engine in engines.values()}) > 1:
            listed = ", ".join(f"{n}: {type(e).__name__}" for n, e in engines.items())
            raise ValueError(f"All jobs must run on one engine, got {listed}.")
        return next(iter(engines.values()))

    @property
    def full_name(self) -> str:
        """The name, or what stands in for it."""
        if self.name:
            return self.name
        if self.cfg_provider is not None and self.cfg_provider.path is not None:
            path = pathlib.Path(self.cfg_provider.path).absolute()
            return f"{path.parent.name}.{path.stem}"
        target = next(iter(self.resolved_jobs.values())).target
        first = target if isinstance(target, str) else (target or [""])[0]
        stem = pathlib.PurePath(first.rpartition(":")[2]).stem
        return folders.safe_name(stem)

    @property
    def all_tags(self) -> list[str]:
        """The tags, with those for platform and sweep."""
        tags = self.tags.split(",") if isinstance(self.tags, str) else self.tags
        given = [tag for tag in (str(tag).strip() for tag in tags) if tag]
        platform = next(iter(self.resolved_jobs.values())).platform
        automatic = [platform] if platform else []
        return list(dict.fromkeys([*given, *automatic, *self.linked_sweep.tags]))

    @property
    def dir_builder(self) -> DirectoryBuilder:
        """Makes the folders of the experiment."""
        root = self.root_dir
        if root is None:
            root = os.environ.get("KAULDRON_ROOT_DIR") or "~/kauldron"
        return DirectoryBuilder(
            subdir_format=self.subdir_format,
            unresolved_root_dir=root,
            ctx=folders.Context(
                resolved_jobs=self.resolved_jobs, sweep_info=self.linked_sweep
            ),
        )

    def work_units(
        self,
        *,
        xid: int | str = UNKNOWN_XID,
        created: float | None = None,
        first_wid: int = 1,
    ) -> list[WorkUnit]:
        """Return all work units, complete and checked. Nothing is written.

        Args:
          xid: The id of the experiment, if there is one yet.
          created: When it was created.
          first_wid: The number of the first work unit.

        Raises:
          ValueError, TypeError, KeyError, OSError: A work unit cannot run; says which.
        """
        from kauldron.kxm.planning import plan

        created = time.time() if created is None else created
        return plan(self, xid=xid, created=created, first_wid=first_wid)

    def launch(
        self,
        *,
        wait: bool | None = None,
        confirm: bool = False,
        announce: bool = False,
        dry: bool = False,
    ) -> ExperimentHandle:
        """Check everything, make the folders, and start the jobs.

        Args:
          wait: Whether to wait for the end; by default as the engine does.
          confirm: Whether to show the work units and ask first.
          announce: Whether to show the work units.
          dry: Whether to show what would be handed to the engine, and start nothing.

        Returns:
          The experiment as it runs.

        Raises:
          ValueError, TypeError, LookupError, OSError: Something cannot run. Nothing was
            started or written.
        """
        from kauldron.kxm.launching import launch

        return launch(self, wait=wait, confirm=confirm, announce=announce, dry=dry)


def _check_order(jobs: Mapping[str, Job]) -> None:
    """Refuse jobs that wait for unknown jobs, or for each other."""
    for name, job in jobs.items():
        for other in job.after:
            if other not in jobs:
                raise ValueError(
                    f"Job {name!r} comes after {other!r}, which is not among the jobs: "
                    f"{', '.join(jobs)}."
                )
    try:
        graphlib.TopologicalSorter({n: job.after for n, job in jobs.items()}).prepare()
    except graphlib.CycleError as error:
        waiting = [name for name in jobs if name in error.args[1]]
        problem = f"The jobs {', '.join(waiting)} wait for each other."
        raise ValueError(problem) from None
