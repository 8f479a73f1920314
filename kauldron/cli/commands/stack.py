"""The process of the engine `Stacked`: trains work units in stacks, and writes their states.

    python -m kauldron.cli.commands.stack --max_units=32 <folder of a work unit> ...

It stands in for the runners of the training jobs of these work units. What it prints goes
to the log of the stack; the log of each work unit says where that is, and why it failed.

Work units of an adaptive search ask for their values in groups of `max_units`: those of a
group cannot learn from each other, those of the next group learn from all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import filesize

from kauldron.cli.command_table import FAILED, OK
from kauldron.cli.loading import build_trainer, load_config, source_from_arguments
from kauldron.kxm import records
from kauldron.kxm.command import KAULDRON_TARGET
from kauldron.kxm.engines.study import Binding
from kauldron.kxm.engines.work_units import WorkUnit

if TYPE_CHECKING:
    from kauldron.train import Trainer
    from kauldron.train.stacked.plan import StackPlan
    from kauldron.train.stacked.unit import Ending

JOB = "train"
_LOOK_SECONDS = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Train work units; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max_units", type=int, default=32)
    parser.add_argument("folders", nargs="+")
    args = parser.parse_args(argv)
    units = [WorkUnit.read(folder) for folder in args.folders]
    return train_units(units, max_units=args.max_units)


def train_units(units: Sequence[WorkUnit], *, max_units: int) -> int:
    """Train work units, stack after stack; return 1 if one of them failed."""
    states = States(units)
    states.waiting()
    try:
        for group in _groups(units, max_units):
            _train_group(group, states, max_units)
    except BaseException as error:
        states.interrupted(error)
        raise
    return FAILED if states.has_failures else OK


def _groups(units: Sequence[WorkUnit], size: int) -> list[list[WorkUnit]]:
    """Divide work units into those whose values are asked for at the same time.

    What was trained together before is the first group: it has its values already.
    """
    is_new = {u.wid: u.search and stack_of(u) is None for u in units}
    begun = [unit for unit in units if not is_new[unit.wid]]
    rest = [unit for unit in units if is_new[unit.wid]]
    rest.sort(key=lambda unit: not unit.sweep)  # a kill may have come between two
    chunks = [rest[start : start + size] for start in range(0, len(rest), size)]
    return [group for group in (begun, *chunks) if group]


def _train_group(units: Sequence[WorkUnit], states: States, max_units: int) -> None:
    from kauldron.train.stacked.plan import make_stacks

    trainers: list[Trainer] = []
    built: list[WorkUnit] = []
    for unit in units:
        try:
            unit = states.bind(unit)
            trainers.append(trainer_of(unit))
            built.append(unit)
        except Exception as error:
            states.failed(unit, error)
    stacks = make_stacks(
        trainers, max_units=max_units, together=[stack_of(unit) for unit in built]
    )
    print("\n".join(plan_lines(built, stacks, is_detailed=False)), flush=True)
    for stack in stacks:
        _train_stack(stack, [built[number] for number in stack.numbers], states)


def _train_stack(stack: StackPlan, members: Sequence[WorkUnit], states: States) -> None:
    from kauldron.train.stacked import loop
    from kauldron.train.stacked.unit import Ending

    class Observer(loop.Observer):
        last_look = 0.0
        stopped: tuple[bool, ...] = (False,) * len(members)

        def on_end(self, number: int, ending: Ending) -> None:
            states.ended(members[number], ending)

        def name_of(self, number: int, trainer: Trainer) -> str:
            del trainer
            return f"unit {members[number].wid}"

        def is_stopped(self, number: int) -> bool:
            if time.monotonic() - self.last_look > _LOOK_SECONDS:
                self.last_look = time.monotonic()
                self.stopped = tuple(
                    records.is_stop_requested(unit.folder) for unit in members
                )
            return self.stopped[number]

        def is_pruned(self, number: int) -> bool:
            return states.is_pruned(members[number])

    remember_stack(members)
    for unit in members:
        states.started(unit, len(members))
    try:
        if stack.obstacle:
            state, _ = stack.trainers[0].train()
            states.ended(members[0], Ending(kind="complete", step=int(state.step)))
        else:
            loop.train(stack.trainers, stack.traced, Observer())
    except Exception as error:
        for unit in members:
            states.failed(unit, error)


#
# Work units
#


def trainer_of(unit: WorkUnit) -> Trainer:
    """Return the trainer that the training job of a work unit would train."""
    arguments = list(unit.jobs[JOB].argv)
    arguments = arguments[arguments.index(KAULDRON_TARGET) + 1 :]
    source, _ = source_from_arguments(arguments, "cfg")
    return build_trainer(load_config(source, import_nothing=False), source)


def stack_of(unit: WorkUnit) -> int | None:
    """Return the stack that a work unit was trained in, by its first member."""
    return records.read_json(_stack_file(unit), {"stack": None})["stack"]


def remember_stack(members: Sequence[WorkUnit]) -> None:
    """Write which units train together, so that a restart forms the same stack."""
    for unit in members:
        if stack_of(unit) is None:
            records.write_json(_stack_file(unit), {"stack": members[0].wid})


def _stack_file(unit: WorkUnit) -> Any:
    return records.private(unit.folder) / "stack.json"


class States:
    """Writes the states of training jobs, as their runners would."""

    def __init__(self, units: Sequence[WorkUnit]) -> None:
        self._open = {unit.wid: unit for unit in units}
        self._searches: dict[int, Binding] = {}
        self.has_failures = False

    def waiting(self) -> None:
        for unit in self._open.values():
            attempt = records.read_status(unit.folder, JOB)["attempt"] + 1
            unit.set_state(
                JOB,
                records.PENDING,
                event="waiting",
                attempt=attempt,
                host=socket.gethostname(),
                pid=os.getpid(),
                engine="stacked",
                returncode=None,
                reason=None,
                ended=None,
            )

    def bind(self, unit: WorkUnit) -> WorkUnit:
        """Return the work unit with its values, which an adaptive search may choose."""
        if not unit.search:
            return unit
        record = records.read_unit(unit.folder)
        binding = Binding(unit.folder, record, JOB)
        binding.bind(lambda: False)
        self._searches[unit.wid] = binding
        self._open[unit.wid] = bound = WorkUnit.read(unit.folder)
        return bound

    def is_pruned(self, unit: WorkUnit) -> bool:
        """Return whether a search gives up a work unit."""
        binding = self._searches.get(unit.wid)
        return binding is not None and binding.should_prune()

    def started(self, unit: WorkUnit, count: int) -> None:
        log = os.environ.get("KXM_WU_DIR")
        where = f", see {records.log_path(log, 'stack')}" if log else ""
        self._write(unit, f"--- trained in a stack of {count}{where}")
        pid = os.getpid()
        unit.set_state(
            JOB, records.RUNNING, event="started", started=time.time(), program_pid=pid
        )

    def ended(self, unit: WorkUnit, ending: Ending) -> None:
        if ending.kind == "failed":
            assert ending.error is not None
            self.failed(unit, ending.error)
        elif ending.kind == "stopped":
            self._close(unit, records.STOPPED, reason=None)
        elif ending.kind == "pruned":
            self._write(unit, f"pruned at step {ending.step}: not promising")
            self._close(unit, records.PRUNED, reason="not promising")
        elif ending.kind == "frozen":
            reason = f"frozen: loss not finite at step {ending.step}"
            self._write(unit, reason)
            self._close(unit, records.SUCCEEDED, reason=reason, returncode=0)
        else:
            self._write(unit, f"complete at step {ending.step}")
            self._close(unit, records.SUCCEEDED, reason=None, returncode=0)

    def failed(self, unit: WorkUnit, error: BaseException) -> None:
        if unit.wid not in self._open:
            return
        self.has_failures = True
        self._write(unit, "".join(traceback.format_exception(error)).rstrip())
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        self._close(unit, records.FAILED, reason=reason, returncode=1)

    def interrupted(self, error: BaseException) -> None:
        """Leave units that can be resumed as they are; an error fails all."""
        for unit in list(self._open.values()):
            if isinstance(error, Exception):
                self.failed(unit, error)
            else:
                unit.set_state(
                    JOB, records.PENDING, event="preempted", reason="preempted"
                )

    def _close(self, unit: WorkUnit, state: str, **details: Any) -> None:
        self._open.pop(unit.wid, None)
        unit.set_state(JOB, state, **details)
        binding = self._searches.get(unit.wid)
        problem = binding.conclude() if binding is not None else None
        if problem:
            self.has_failures = True
            unit.set_state(JOB, records.FAILED, reason=problem)

    def _write(self, unit: WorkUnit, text: str) -> None:
        path = records.log_path(unit.folder, JOB)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as log:
            log.write(text + "\n")


#
# What `kauldron sweep --plan` prints
#


def plan_lines(
    units: Sequence[WorkUnit], stacks: Sequence[StackPlan], *, is_detailed: bool
) -> list[str]:
    """Return one line for each stack: who is in it.

    With details, which takes tracing and compiling, also what sets it apart and what
    memory it needs.
    """
    plural = "" if len(stacks) == 1 else "s"
    lines = [f"{len(units)} work units in {len(stacks)} stack{plural}:"]
    for number, stack in enumerate(stacks):
        members = [units[n] for n in stack.numbers]
        wids = ", ".join(_ranges([unit.wid for unit in members]))
        units_text = "work unit" if len(members) == 1 else "work units"
        parts = [f"  stack {number + 1}: {units_text} {wids} ({len(members)})"]
        if stack.obstacle:
            parts.append(f"trained alone: {stack.obstacle}")
        elif is_detailed:
            parts += _comparison(units, stacks[:number], stack)
            if stack.memory is not None:
                parts.append(filesize.decimal(stack.memory))
            if stack.largest is not None:
                parts.append(f"up to {stack.largest} fit")
        lines.append("; ".join(parts))
    return lines


def _comparison(
    units: Sequence[WorkUnit], earlier: Sequence[StackPlan], stack: StackPlan
) -> list[str]:
    """Return how a stack differs from the first that it can be compared with."""
    comparable = [(n, s) for n, s in enumerate(earlier) if not s.obstacle]
    for number, other in comparable:
        if stack.traced[0].is_same_program(other.traced[0]):
            return [f"the same program as stack {number + 1}"]
    if not comparable:
        return []
    number, other = comparable[0]
    one, two = units[other.numbers[0]], units[stack.numbers[0]]
    path = differing_path(one, two, other)
    values = f" ({two.sweep.get(path)} instead of {one.sweep.get(path)})"
    what = path + (values if path in one.sweep else "")
    return [f"differs from stack {number + 1} in {what}"]


def differing_path(one: WorkUnit, two: WorkUnit, stack: StackPlan) -> str:
    """Return the first path of a sweep that alone changes the program of a stack.

    `one` is a work unit of the stack, `two` has another program.
    """
    from kauldron.train.stacked.steps import TracedStep

    paths = [p for p in two.sweep if two.sweep[p] != one.sweep.get(p)]
    for path in paths if len(paths) > 1 else ():
        try:
            changed = TracedStep.of(trainer_of(_with_flag_of(one, path, two)))
        except Exception:  # such a mixture need not make sense
            continue
        if not changed.is_same_program(stack.traced[0]):
            return path
    return " and ".join(paths)


def _with_flag_of(unit: WorkUnit, path: str, other: WorkUnit) -> WorkUnit:
    """Return a work unit that has one value of its sweep from another."""
    start = f"--{path}="
    value = next(a for a in other.jobs[JOB].argv if a.startswith(start))
    argv = tuple(
        value if argument.startswith(start) else argument
        for argument in unit.jobs[JOB].argv
    )
    job = dataclasses.replace(unit.jobs[JOB], argv=argv)
    return dataclasses.replace(unit, jobs={JOB: job})


def _ranges(numbers: Sequence[int]) -> list[str]:
    """Write numbers as ranges.

    Example:
      >>> _ranges([1, 2, 3, 7])
      ['1-3', '7']
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return [f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in found]


if __name__ == "__main__":
    sys.exit(main())
