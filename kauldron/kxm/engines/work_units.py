"""Work units as engines get them: commands, environments and folders, ready to run."""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
from collections.abc import Mapping
from typing import Any

from kauldron.kxm import records
from kauldron.kxm.jobs import JobRequirements, Platform


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkUnitJob:
    """One program of a work unit.

    Attributes:
      name: The name of the job, unique in the work unit.
      argv: The command; no shell is involved.
      env: The environment variables that it needs beyond those of the engine.
      cwd: The working directory.
      after: Which jobs of the work unit to wait for: maps the name of each to `started`
        or `succeeded`.
      platform: The accelerator that was asked for.
      requirements: The other resources.
      restart: When to start it again: `never`, `on_signal`, `on_failure`.
      max_restarts: How often.
      grace_s: How long it may take to save, once it was told to stop.
      files: Files to copy, by the path of the copy, which the command names.
      texts: Contents of files to write, by their path, which the command names.
      search_at: Where in the argv an adaptive search puts its values.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cwd: str = "."
    after: Mapping[str, str] = dataclasses.field(default_factory=dict)
    platform: str | None = None
    requirements: JobRequirements = dataclasses.field(default_factory=JobRequirements)
    restart: str = "on_signal"
    max_restarts: int = 3
    grace_s: float = 60.0
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    search_at: int | None = None

    @property
    def accelerator(self) -> Platform | None:
        """The platform, read."""
        return Platform.parse(self.platform) if self.platform else None

    @property
    def gpus(self) -> int | None:
        """The number of GPUs per node; `None` if nothing was said."""
        accelerator = self.accelerator
        if accelerator is not None:
            return accelerator.count if accelerator.kind == "gpu" else 0
        return self.requirements.gpus

    def shell_command(self, env: Mapping[str, str] | None = None) -> str:
        """Return a line for a shell that runs the program, without any engine."""
        values = {**self.env, **(env or {})}
        settings = [f"{name}={shlex.quote(v)}" for name, v in values.items()]
        command = ["cd", shlex.quote(self.cwd), "&&"]
        command += ["env", *settings] if settings else []
        return " ".join([*command, *map(shlex.quote, self.argv)])

    def to_json(self) -> dict[str, Any]:
        """Return the part of `work_unit.json` about this job."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del fields["files"], fields["texts"]
        plain = {"argv": list(self.argv), "env": dict(self.env)}
        plain |= {"after": dict(self.after)}
        return {**fields, **plain, "requirements": self.requirements.explicit}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkUnitJob:
        """Return the job that `to_json` wrote."""
        known = {f.name for f in dataclasses.fields(cls)} & set(data)
        fields = {name: data[name] for name in known}
        requirements = JobRequirements(**data.get("requirements", {}))
        changes = {"argv": tuple(data["argv"]), "requirements": requirements}
        return cls(**{**fields, **changes})


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkUnit:
    """One point of a sweep.

    Attributes:
      wid: Its number, from 1.
      xid: The id of the experiment; `<xid>` before there is one.
      xp_dir: The folder with the records of the experiment, on this file system.
      folder: The folder with the records and logs of the work unit, on this file system.
      workdir: The folder that the jobs write to; the same unless it is remote.
      sweep: From the name of a flag to its value.
      ui: What is shown of the sweep.
      jobs: The programs, in order.
      num_work_units: How many work units the experiment has.
      search: Whether its values are chosen when it starts.
    """

    wid: int
    xid: int | str
    xp_dir: pathlib.Path
    folder: pathlib.Path
    workdir: str
    sweep: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ui: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    jobs: Mapping[str, WorkUnitJob]
    num_work_units: int = 1
    search: bool = False

    def write(self) -> None:
        """Write the record, from which runners run the jobs."""
        record = {
            "wid": self.wid,
            "xid": self.xid,
            "xp_dir": str(self.xp_dir),
            "workdir": self.workdir,
            "sweep": dict(self.sweep),
            "ui": {key: str(value) for key, value in self.ui.items()},
            "jobs": {name: job.to_json() for name, job in self.jobs.items()},
            "num_work_units": self.num_work_units,
            "search": self.search,
        }
        records.write_unit(self.folder, record)

    @classmethod
    def read(cls, folder: str | pathlib.Path) -> WorkUnit:
        """Return the work unit whose record is in a folder."""
        data = records.read_unit(folder)
        jobs = {n: WorkUnitJob.from_json(job) for n, job in data["jobs"].items()}
        known = {f.name for f in dataclasses.fields(cls)} & set(data)
        fields = {name: data[name] for name in known}
        places = {
            "folder": pathlib.Path(folder),
            "xp_dir": pathlib.Path(data["xp_dir"]),
        }
        return cls(**{**fields, **places, "jobs": jobs})

    def state_of(self, job: str) -> str:
        """Return the state of a job."""
        return records.read_status(self.folder, job)["state"]

    def set_state(self, job: str, state: str, **details: Any) -> None:
        """Write the state of a job that no runner writes, such as `stopped`."""
        records.set_state(self.xp_dir, self.wid, self.folder, job, state, **details)
