"""The loop of a stack: ordinary runs between steps, one program for the steps themselves.

Each training of a stack is a `Unit`: the run of `trainer.train()` with its own workdir,
log, evaluations, checkpoints and resume. Only the updates are shared. All units of a stack
are at the same step; one that begins later (its last checkpoint is newer than that of the
others) or whose loss was not finite keeps its state while the others go on. Units that
ended are taken out of the program between two steps, at points that depend on the configs
and checkpoints alone, so that a stack that was killed continues bit for bit.
"""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import numpy as np

from kauldron import status
from kauldron.errors import error_prefix
from kauldron.train import problems
from kauldron.train.run import (
    dispatch,
    lifecycle,
    preemption,
    step_groups,
    workdir_files,
)
from kauldron.train.run.feed import Feed, Feeder
from kauldron.train.run.terminal.progress import Progress
from kauldron.train.stacked import batches, programs, steps
from kauldron.train.stacked.unit import (
    Ending,
    HostStepsOfUnits,
    Unit,
    nonfinite_ending,
    read_nonfinite,
    write_nonfinite,
)

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer

_MOST_DISPATCHES_IN_FLIGHT = 2
# By the modest estimate of `step_groups.seconds_of`; in truth it takes a fraction of that.
_LONGEST_DISPATCH_SECONDS = 2.0
_MOST_STEPS = 1024
_STACKED_BYTES = 256 * 2**20


class Observer:
    """Hears how each training ends, and may end one early. By default it does neither."""

    def on_end(self, number: int, ending: Ending) -> None:
        """Note the end of the training of a trainer, given by its number."""

    def name_of(self, number: int, trainer: Trainer) -> str:
        """Return what a training is called in the log that it shares with others."""
        del number
        return trainer.workdir.name

    def is_stopped(self, number: int) -> bool:
        """Return whether a training is to save and stop."""
        del number
        return False

    def is_pruned(self, number: int) -> bool:
        """Return whether to give up a training that has just saved."""
        del number
        return False


def train(
    trainers: Sequence[Trainer],
    traced: Sequence[steps.TracedStep] | None = None,
    observer: Observer | None = None,
) -> list[Ending]:
    """Train several trainers, whose steps are the same program up to constants.

    Each leaves behind the workdir that `trainer.train()` would, and continues from it.

    Args:
      trainers: The experiments; each has a workdir of its own.
      traced: Their steps, if they were traced before.
      observer: Hears how each training ends.

    Returns:
      For each trainer, how its training ended.

    Raises:
      ValueError: The steps are not the same program.
    """
    traced = traced or [steps.TracedStep.of(trainer) for trainer in trainers]
    if len(steps.group_steps(traced)) > 1:
        raise ValueError(
            "These trainings cannot be stacked: their train steps differ in more than "
            "constants. `kauldron sweep --plan` shows which ones fit together."
        )
    with contextlib.ExitStack() as stack:
        request = stack.enter_context(
            preemption.stop_on_signals("saving at the next step")
        )
        run = Stack(request, observer or Observer(), stack)
        run.start(trainers, traced)
        run.until_the_end()
    return [run.endings[number] for number in range(len(trainers))]


#
# All of them
#


class Stack:
    """The mutable side of one `train` call."""

    def __init__(
        self,
        stop_request: preemption.StopRequest,
        observer: Observer,
        closing: contextlib.ExitStack,
    ):
        self.stop_request = stop_request
        self.endings: dict[int, Ending] = {}
        self.lanes: list[steps.Lanes]  # of each run of the program
        self.step = 0
        self.units: list[Unit] = []  # in the order of lanes
        self._eval_jit = programs.SharedJit()
        self._observer = observer
        self._closing = closing
        self._own_closing: dict[int, contextlib.ExitStack] = {}
        self._names: dict[int, str] = {}
        self._in_flight: collections.deque[tuple[list[jax.Array], int, int]] = (
            collections.deque()
        )

    #
    # Start
    #

    def start(
        self, trainers: Sequence[Trainer], traced: Sequence[steps.TracedStep]
    ) -> None:
        """Begin each training, or continue it; those that cannot have ended."""
        for number, (trainer, step) in enumerate(zip(trainers, traced, strict=True)):
            closing = contextlib.ExitStack()
            self._own_closing[number] = self._closing.enter_context(closing)
            name = self._observer.name_of(number, trainer)
            self._names[number] = name if len(trainers) > 1 else ""
            with status.speaking_of(self._names[number]):
                try:
                    unit = self._start(number, trainer, step)
                except Exception as error:
                    self._end(number, Ending(kind="failed", error=error))
                    continue
            if unit is not None:
                self.units.append(unit)
        if self.units:
            self._prepare()

    def _start(
        self, number: int, trainer: Trainer, traced: steps.TracedStep
    ) -> Unit | None:
        problems.report(problems.find(trainer))
        last_step = lifecycle.find_last_step(trainer)
        assert last_step is not None, "see `plan.obstacle_to_stacking`"
        trainer.setup.run(trainer)
        closing = self._own_closing[number]
        closing.enter_context(workdir_files.workdir_lock(trainer.workdir))
        lifecycle.close_at_the_end(closing, trainer)
        died = read_nonfinite(trainer)
        if died is not None:
            self._end(number, nonfinite_ending(trainer, died))
            return None
        for evaluator in trainer.evals.values():
            evaluator.on_train_start(last_step=last_step)
            evaluator.compile_with(self._eval_jit)
        begin = lifecycle.start_or_resume(trainer, last_step)
        if begin.is_complete:
            begin.ds_iter.close()
            with self._leaving_if_asked():
                lifecycle.finish_complete_run(trainer, begin)
            self._end(number, Ending(kind="complete", step=begin.step))
            return None
        return Unit(self, number, trainer, traced, begin, last_step)

    def _prepare(self) -> None:
        units = self.units
        self.step = min(unit.begin.step for unit in units)
        last_step = max(unit.last for unit in units)
        kinds = {unit.host_key: unit for unit in units}
        self._host_steps = HostStepsOfUnits(
            units[0].trainer, last_step, tuple(kinds.values())
        )
        sources = batches.sources_of(units)
        self._records, self._transforms = batches.on_device(sources)
        if self._transforms is not None:
            status.log(
                "These transforms run on the device, inside the train step: "
                f"{self._transforms}."
            )
        self._destination = dispatch.Dispatcher(
            units[0].trainer,
            self._host_steps,
            _group_size(units, self._host_steps, has_records=bool(self._records)),
            self._records,  # pyright: ignore[reportArgumentType]
        )
        can_read_ahead = all(lifecycle.can_read_ahead(s.iterator) for s in sources)
        self._feeder = Feeder(
            batches.JoinedIterator(sources, step=self.step),
            self._destination,
            step=self.step,
            depth=1 + self._destination.size if can_read_ahead else 0,
            while_waiting=self._leave_if_asked,
        )
        self._closing.callback(self._feeder.close)
        desc = f"{units[0].trainer.setup.tqdm_info.desc} ({len(units)} runs)"
        self.progress = self._closing.enter_context(
            Progress(desc, step=self.step, last_step=last_step)
        )
        # Only one trace can be recorded at a time: it goes to the first workdir.
        self._profiler = units[0].trainer.profiler.start(self.step)
        self._closing.callback(self._profiler.close)
        for unit in units:
            unit.feeder = batches.Position(self._feeder, unit.source)  # pyright: ignore
            unit.progress = self.progress
        width = steps.lanes_per_run([unit.traced for unit in units])
        self.lanes = [
            steps.start_lanes([unit.state for unit in units[n : n + width]])
            for n in range(0, len(units), width)
        ]
        self._use_lanes(units)
        for unit in units:
            unit.chrono.start_loop()

    def _use_lanes(self, units: Sequence[Unit]) -> None:
        """Make the program for these units, which have the lanes in this order."""
        self.units = list(units)
        for lane, unit in enumerate(self.units):
            unit.lane = lane
            unit.state = None  # pyright: ignore[reportAttributeAccessIssue]
        self._programs: dict[Any, steps.StackedStep] = {}

    #
    # The loop
    #

    def until_the_end(self) -> None:
        """Run the loop; pending values are written on every way out."""
        try:
            while self.units:
                if self._host_steps.pauses_before(self.step) or self._should_look():
                    self._between_steps()
                if self.units:
                    self._dispatch()
        except BaseException as error:
            try:
                self.finish_steps()
            except Exception as write_error:
                text = f"Values of the last logged step were lost: {write_error!r}"
                error.add_note(text)
            raise

    def _should_look(self) -> bool:
        is_asked = self.stop_request.is_set(self.step)
        return is_asked or any(self._observer.is_stopped(u.number) for u in self.units)

    def _between_steps(self) -> None:
        self.finish_steps()
        if self.stop_request.is_set(self.step):
            self.leave()
        for unit in self._active():
            if self._observer.is_stopped(unit.number):
                with self._failing_alone(unit):
                    unit.save_for_leaving()
                    self._end(unit.number, Ending(kind="stopped", step=self.step))
        for unit in self._active():
            with self._failing_alone(unit):
                if not unit.continue_at_step():
                    self._finish(unit)
        self._prune()
        self._end_dead_units()
        self._drop_ended_units()

    def _active(self) -> list[Unit]:
        """Return the units whose state is that of this step."""
        return [
            unit
            for unit in self.units
            if unit.begin.step <= self.step
            and unit.died < 0
            and unit.number not in self.endings
        ]

    def _finish(self, unit: Unit) -> None:
        self.finish_steps()
        with self._leaving_if_asked():
            lifecycle.finish(unit.trainer, unit.state, unit.step, unit.hooks)
        self._end(unit.number, Ending(kind="complete", step=unit.step))

    @contextlib.contextmanager
    def _failing_alone(self, unit: Unit) -> Any:
        """End only this unit if it raises between steps.

        Its time is not charged to the other units.
        """
        others = [other for other in self.units if other is not unit]
        with contextlib.ExitStack() as pauses:
            pauses.enter_context(status.speaking_of(self._names[unit.number]))
            for other in others:
                pauses.enter_context(other.chrono.pause())
            try:
                yield
            except Exception as error:
                ending = Ending(kind="failed", step=self.step, error=error)
                self._end(unit.number, ending)

    def _dispatch(self) -> None:
        step = self.step
        self.progress.doing("reading data")
        start = time.perf_counter()
        try:
            feed = next(self._feeder)
        except StopIteration:
            self._on_data_end()
            return
        self.progress.resume()
        waited = time.perf_counter() - start
        updated = [unit for unit in self.units if unit.is_active(step)]
        for unit in updated:
            unit.chrono.add_data_wait(waited)
        with error_prefix(lambda: f"Step {step} failed: "):
            stepped = self._run(feed, step, updated)
        self.lanes = [run.lanes for run in stepped]
        measured = [aux for run in stepped for aux in run.aux]
        self.step += feed.size
        for unit in updated:
            unit.state = None  # pyright: ignore[reportAttributeAccessIssue]
            unit.step = self.step
        died = [run.died for run in stepped]
        self._in_flight.append((died, feed.size, step))
        is_pending = any(unit.log.pending for unit in self.units)
        if is_pending:
            self.finish_steps(but=1)
        else:
            self.wait_for_steps(but=_MOST_DISPATCHES_IN_FLIGHT)
        for unit in updated:
            host = unit.host_steps
            if measured and host.logs(step) and unit.died < 0:
                unit.log.push(
                    step,
                    unit.traced.aux_of(measured[unit.lane]),
                    log_metrics=host.logs_metrics(step),
                    log_summaries=host.logs_summaries(step),
                )
        self.progress.update(self.step, None, speed=self.units[0].chrono.steps_per_sec)
        if self._profiler.is_due(self.step):
            self.wait_for_steps()
            self._profiler.after_step(self.step)
        if all(unit.died >= 0 for unit in self.units):
            self._end_dead_units(at_once=True)
            self._drop_ended_units()

    def _run(self, feed: Feed, step: int, updated: list[Unit]) -> list[steps.Stepped]:
        program = self._program(feed)
        is_active = np.array([unit in updated for unit in self.units])
        if feed.size > 1:
            method = "run_group"
        # Where there are groups, single steps are rare: one program less to compile.
        elif self._destination.size > 1 or self._host_steps.logs(step):
            method = "run_measured"
        else:
            method = "run"
        return program.update(
            self.lanes, feed.batch, is_active, are_rows=feed.is_rows, method=method
        )

    def _program(self, feed: Feed) -> steps.StackedStep:
        """Return the program for the shapes of a feed; a last batch may be smaller."""
        specs = None if feed.is_rows else _batch_specs(feed)
        if specs is not None and self._transforms is not None:
            specs = jax.eval_shape(self._transforms.apply, specs)
        key = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(specs))
        if key not in self._programs:
            traced = [unit.traced for unit in self.units]
            if specs is not None and not traced[0].takes(specs):
                traced = [steps.TracedStep.of(u.trainer, specs) for u in self.units]
                if len(steps.group_steps(traced)) > 1:
                    raise ValueError(
                        "The train steps are not the same program for a batch of "
                        f"{specs}. Set `cfg.train_ds.batch_drop_remainder=True`."
                    )
            self._programs[key] = steps.StackedStep(
                traced,
                np.array([u.trainer.on_nonfinite != "ignore" for u in self.units]),
                np.array([u.source for u in self.units]),
                self._records.by_source[0] if self._records else None,
                self._transforms,
            )
        return self._programs[key]

    def wait_for_steps(self, *, but: int = 0) -> None:
        """Wait for all dispatches but the newest, and note whose loss was not finite."""
        while len(self._in_flight) > but:
            token, size, step = self._in_flight.popleft()
            died = np.concatenate(token)
            for unit in self.units:
                if unit.begin.step <= step:
                    unit.chrono.finish_step(size)
                unit.died = int(died[unit.lane])

    def finish_steps(self, *, but: int = 0) -> None:
        """Wait for dispatches, then write what the last logged step measured."""
        self.wait_for_steps(but=but)
        for unit in self.units:
            with status.speaking_of(self._names[unit.number]):
                unit.write_log()

    def _on_data_end(self) -> None:
        self.finish_steps()
        for unit in self._active():
            with self._failing_alone(unit):
                unit.save_for_leaving()
                raise lifecycle.DataEndedError(
                    f"The training data ended at step {self.step} of {unit.last}. Set "
                    "`cfg.train_ds.num_epochs=None` to repeat it, or a smaller "
                    "`cfg.num_train_steps`."
                )
        self._end_dead_units(at_once=True)
        self._drop_ended_units()

    #
    # Ends
    #

    def _end_dead_units(self, *, at_once: bool = False) -> None:
        """End units whose loss was not finite, when the others have saved.

        Then a start that finds the unit ended finds the others where it was taken out.
        """
        dead = [u for u in self.units if u.died >= 0 and u.number not in self.endings]
        others = [unit for unit in self.units if unit not in dead]
        if not dead or not (at_once or self._are_saved(others)):
            return
        self._wait_for_checkpoints()
        for unit in dead:
            with self._failing_alone(unit):
                write_nonfinite(unit.trainer, unit.died)
                self._end(unit.number, nonfinite_ending(unit.trainer, unit.died))

    def _prune(self) -> None:
        """End units that are not promising; they have saved this step, as above."""
        pruned = [
            unit
            for unit in self._active()
            if self._are_saved([unit]) and self._observer.is_pruned(unit.number)
        ]
        if pruned:
            self._wait_for_checkpoints()
        for unit in pruned:
            with status.speaking_of(self._names[unit.number]):
                status.log(f"Not promising, pruned at step {self.step}.")
                self._end(unit.number, Ending(kind="pruned", step=self.step))

    def _are_saved(self, units: Sequence[Unit]) -> bool:
        """Return whether this step was saved, or never will be."""
        return any(unit.saved_at == self.step for unit in units) or not any(
            lifecycle.is_real(unit.trainer.checkpointer) for unit in units
        )

    def _wait_for_checkpoints(self) -> None:
        for unit in self.units:
            unit.trainer.checkpointer.wait_until_finished()

    def _end(self, number: int, ending: Ending) -> None:
        closing, error = self._own_closing[number], ending.error
        try:
            if error is None:
                closing.close()
            else:
                status.log_warning(f"{type(error).__name__}: {error}")
                closing.__exit__(type(error), error, error.__traceback__)
        except Exception as close_error:
            ending = Ending(kind="failed", step=ending.step, error=close_error)
        self.endings[number] = ending
        self._observer.on_end(number, ending)

    def _drop_ended_units(self) -> None:
        left = [unit for unit in self.units if unit.number not in self.endings]
        if left and len(left) < len(self.units):
            self.lanes = steps.take_lanes(self.lanes, [unit.lane for unit in left])
            self._use_lanes(left)
        self.units = left

    #
    # Leaving early
    #

    def leave(self) -> NoReturn:
        """Save all units at this step, and stop."""
        self.finish_steps()
        for unit in self._active():
            unit.save_for_leaving()
        status.log(f"Stopped at step {self.step}, as asked; a new start continues.")
        self.stop_request.leave(self.step)

    def _leave_if_asked(self) -> None:
        if self.stop_request.exit_code is not None:
            self.leave()

    @contextlib.contextmanager
    def _leaving_if_asked(self) -> Any:
        try:
            with preemption.watched(self.stop_request):
                yield
        except preemption.StopRequested:
            self.leave()


def _batch_specs(feed: Feed) -> Any:
    skipped = 1 if feed.size > 1 else 0
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[skipped:], leaf.dtype),
        feed.batch[0],
    )


def _group_size(
    units: Sequence[Unit], host_steps: HostStepsOfUnits, *, has_records: bool
) -> int:
    """Return how many steps a dispatch has where the host need not look."""
    wanted = units[0].trainer.steps_per_dispatch
    if wanted == "auto":
        if jax.default_backend() == "cpu":
            return 1
        seconds = len(units) * step_groups.seconds_of(units[0].traced.program)
        wanted = int(_LONGEST_DISPATCH_SECONDS / max(seconds, 1e-6))
        if not has_records:
            size = len(units) * step_groups.num_bytes(units[0].traced.program.in_avals)
            wanted = min(wanted, _STACKED_BYTES // max(size, 1))
        wanted = max(1, min(wanted, _MOST_STEPS))
    if wanted == 1:
        return 1
    return step_groups.best_size(host_steps.planned_runs(), wanted)
