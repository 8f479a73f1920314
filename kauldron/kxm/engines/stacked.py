"""`Stacked`: train work units that differ only in numbers in one compiled program."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kauldron.kxm import records
from kauldron.kxm.command import KAULDRON_TARGET
from kauldron.kxm.engines.local import Local, Machine
from kauldron.kxm.engines.scheduler import Scheduler, Task
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob
from kauldron.kxm.jobs import JobRequirements

if TYPE_CHECKING:
    from kauldron.kxm.handle import ExperimentHandle

_TRAIN = "train"
_STACK = "stack"
_PROGRAM = "kauldron.cli.commands.stack"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Stacked(Local):
    """Trains many work units at once, on this machine, in as few programs as possible.

    Which work units share a program is found by comparing them: learning rates, seeds,
    schedules, dropout rates and loss weights only change numbers in it; widths and batch
    sizes make another program, and another stack. Each work unit has a workdir like that
    of any run, and results agree with those of a run of its own up to rounding.

    All stacks of a GPU are trained by one process, one after the other. Other jobs of
    the work units, such as standalone evaluators, run as with `Local`.

    Attributes:
      max_units: The largest stack.

    Example:
      >>> Stacked(max_units=8).max_units
      8
    """

    max_units: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("max_units")
        if self.processes != 1:
            raise ValueError(
                f"Stacked(processes={self.processes}): a stack is trained by one process."
            )

    def validate(self, units: Sequence[WorkUnit]) -> None:
        for unit in units:
            problem = _problem_of(unit)
            if problem:
                raise ValueError(f"Work unit {unit.wid}: {problem}")
        super().validate(units)

    def submit(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        machine = Machine.here(self.gpus)
        count = len(machine.gpus) or 1
        count = count if self.max_parallel is None else min(count, self.max_parallel)
        trainings = [u for u in units if u.state_of(_TRAIN) != records.SUCCEEDED]
        folder = records.private(handle.xp_dir) / "stacks"
        first = 1 + (len(os.listdir(folder)) if folder.is_dir() else 0)
        stacks, members = [], {}
        for number, part in enumerate(divided(trainings, count), first):
            stack = self._stack_unit(part, folder / str(number), machine)
            stack.write()
            stacks.append(stack)
            members[stack.folder] = part
        others = [_without_training(unit) for unit in units]
        handle.session = _StackScheduler(self, [*stacks, *others], machine, members)
        handle.session.start()

    def _stack_unit(
        self, members: Sequence[WorkUnit], folder: pathlib.Path, machine: Machine
    ) -> WorkUnit:
        """Return a work unit whose only job trains others; its runner is an ordinary one."""
        first = members[0].jobs[_TRAIN]
        requirements = first.requirements
        if machine.gpus and first.gpus is None:
            requirements = JobRequirements(**{**requirements.explicit, "gpus": 1})
        folders = [str(unit.folder) for unit in members]
        job = WorkUnitJob(
            name=_STACK,
            argv=(
                first.argv[0] if first.argv else sys.executable,
                "-m",
                _PROGRAM,
                f"--max_units={self.max_units}",
                *folders,
            ),
            env=first.env,
            cwd=first.cwd,
            platform=first.platform,
            requirements=requirements,
            restart=self.restart,
            max_restarts=self.max_restarts,
            grace_s=self.grace_s,
        )
        return WorkUnit(
            wid=0,
            xid=members[0].xid,
            xp_dir=members[0].xp_dir,
            folder=folder,
            workdir=str(folder),
            jobs={_STACK: job},
            num_work_units=len(members),
        )


def _problem_of(unit: WorkUnit) -> str | None:
    """Return why a work unit cannot be stacked, whatever its config says."""
    job = unit.jobs.get(_TRAIN)
    if job is None or KAULDRON_TARGET not in job.argv:
        return (
            "Stacked trains configs of `kd.train.Trainer`; this one runs another program. "
            "Use --xp.executor=local."
        )
    if (job.gpus or 0) > 1:
        return f"{job.gpus} GPUs are asked for, but a stack lives on one."
    arguments = job.argv[job.argv.index(KAULDRON_TARGET) + 1 :]
    ours = ("--cfg=", "--cfg.", "--cfg[")
    other = [argument for argument in arguments if not argument.startswith(ours)]
    if other:
        return f"Stacked cannot give {other[0]} to one of several trainings."
    return None


def _without_training(unit: WorkUnit) -> WorkUnit:
    jobs = {name: job for name, job in unit.jobs.items() if name != _TRAIN}
    return dataclasses.replace(unit, jobs=jobs)


def divided(units: Sequence[WorkUnit], count: int) -> list[list[WorkUnit]]:
    """Divide work units among processes; those of a stack of before stay together."""
    together: dict[Any, list[WorkUnit]] = {}
    new: list[WorkUnit] = []
    for unit in units:
        path = records.private(unit.folder) / "stack.json"
        stack = records.read_json(path, {"stack": None})["stack"]
        (new if stack is None else together.setdefault(stack, [])).append(unit)
    size = -(-len(new) // count)
    parts = [new[start : start + size] for start in range(0, len(new), size or 1)]
    parts += [[] for _ in range(count - len(parts))]
    for members in together.values():
        min(parts, key=len).extend(members)
    return [sorted(part, key=lambda unit: unit.wid) for part in parts if part]


class _StackScheduler(Scheduler):
    """Runs stacks; when one ends for good, so do the work units that it left open."""

    def __init__(
        self,
        engine: Stacked,
        units: Sequence[WorkUnit],
        machine: Machine,
        members: Mapping[pathlib.Path, Sequence[WorkUnit]],
    ) -> None:
        super().__init__(engine, units, machine)
        self._members = members

    def _settle(self, task: Task) -> None:
        super()._settle(task)
        if task.is_done:
            self._close_members(task)

    def _end(self, task: Task, state: str, **details: Any) -> None:
        super()._end(task, state, **details)
        self._close_members(task)

    def _close_members(self, task: Task) -> None:
        status = records.read_status(task.unit.folder, task.job.name)
        state, reason = records.STOPPED, None
        if status["state"] != records.STOPPED:
            log = records.log_path(task.unit.folder, task.job.name)
            state = records.FAILED
            reason = f"{status.get('reason') or 'the stack ended'}, see {log}"
        for unit in self._members.get(task.unit.folder, ()):
            if unit.state_of(_TRAIN) not in records.FINAL:
                unit.set_state(_TRAIN, state, reason=reason)
