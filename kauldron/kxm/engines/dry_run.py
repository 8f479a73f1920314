"""`DryRun`: shows what would be launched, after checking all of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kauldron.kxm.engines.executor import Executor
from kauldron.kxm.engines.work_units import WorkUnit
from kauldron.kxm.folders import sweep_text


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class DryRun(Executor):
    """Prints the work units and a shell command for each job. Writes nothing."""


def describe(units: Sequence[WorkUnit], executor: Executor, *, name: str) -> str:
    """Return the text of a dry run of an experiment called `name`."""
    engine = "" if isinstance(executor, DryRun) else f" on {type(executor).__name__}"
    lines = [f"Experiment {name}{engine}", *unit_lines(units), ""]
    for unit in units:
        for job in unit.jobs.values():
            own = {"KXM_WU_DIR": str(unit.folder), "KXM_WID": str(unit.wid)}
            lines.append(f"# Work unit {unit.wid}, {job.name}")
            lines.append(job.shell_command(own))
            submission = executor.submission_text(unit, job)
            lines += [submission] if submission else []
    return "\n".join(lines)


def unit_lines(units: Sequence[WorkUnit]) -> list[str]:
    """Return one line for each work unit: number, folder, what varies."""
    width = len(str(len(units)))
    plural = "" if len(units) == 1 else "s"
    lines = [f"{len(units)} work unit{plural}:"]
    for unit in units:
        varies = sweep_text(unit.ui) or "-"
        lines.append(f"  {unit.wid:>{width}}  {varies}  {unit.workdir}")
    return lines
