"""The training loop: `trainer.train()`."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import jax

from kauldron import status
from kauldron.errors import error_prefix
from kauldron.train import hooks as hooks_lib
from kauldron.train import problems
from kauldron.train.run import chrono as chrono_lib
from kauldron.train.run import lifecycle, preemption, workdir_files
from kauldron.train.run.deferred_log import (
    DeferredLog,
    measured_values,
    nested_values,
)
from kauldron.train.run.dispatch import Dispatcher, make_dispatcher
from kauldron.train.run.feed import DataWaitHint, Feeder
from kauldron.train.run.step_groups import HostSteps
from kauldron.train.run.terminal import panel
from kauldron.train.run.terminal.progress import Progress
from kauldron.train.run.workdir_files import workdir_lock
from kauldron.train.state import AuxiliariesState, CheckpointState

if TYPE_CHECKING:
    from kauldron.train.run.profiler import ProfilerSession
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer


_MOST_DISPATCHES_IN_FLIGHT = 2


def train(trainer: Trainer) -> tuple[TrainState, AuxiliariesState | None]:
    """Train until the last step; see `Trainer.train`."""
    if trainer.setup.eval_only:
        raise ValueError(
            "This trainer evaluates an earlier run and cannot train: use "
            "`trainer.continuous_eval(names)`."
        )
    problems.report(problems.find(trainer))
    last_step = lifecycle.find_last_step(trainer)
    trainer.setup.run(trainer)
    with contextlib.ExitStack() as stack:
        stack.enter_context(panel.shown(trainer))
        if status.is_lead_host:
            stack.enter_context(workdir_lock(trainer.workdir))
        stop_request = stack.enter_context(
            preemption.stop_on_signals("saving at the next step")
        )
        lifecycle.close_at_the_end(stack, trainer)
        for evaluator in trainer.evals.values():
            evaluator.on_train_start(last_step=last_step)
        trainer.setup.log_status("Preparing the state")
        begin = lifecycle.start_or_resume(trainer, last_step)
        if begin.is_complete:
            begin.ds_iter.close()
            with lifecycle.leaving_if_asked(stop_request, begin.step):
                return lifecycle.finish_complete_run(trainer, begin), None
        panel.begin(trainer, begin.state, step=begin.step, last_step=last_step)
        run = Run(trainer, begin, last_step, stop_request)
        stack.push(run.note_end)
        run.until_the_end(stack)
        run.progress.doing("finishing")
        with lifecycle.leaving_if_asked(stop_request, run.step):
            state = lifecycle.finish(trainer, run.state, run.step, run.hooks)
            return state, run.aux


class Run:
    """The mutable side of one `train()` call."""

    def __init__(
        self,
        trainer: Trainer,
        begin: lifecycle.Start,
        last_step: int | None,
        stop_request: preemption.StopRequest,
    ):
        self.trainer = trainer
        self.begin = begin
        self.last_step = last_step
        self.stop_request = stop_request
        self.state = begin.state
        self.step = begin.step
        self.chrono = begin.chrono
        self.hooks = hooks_lib.ActiveHooks(trainer, begin.hooks)
        self.aux: AuxiliariesState | None = None
        self.evaluated: dict[str, Any] = {}  # at this step, by evaluator
        self.is_over = False
        self.is_save_to_be_noted = False
        self.has_noted_save = begin.is_resumed
        self.log = DeferredLog(trainer)
        self.in_flight: collections.deque[tuple[jax.Array, int]] = collections.deque()
        self.data_wait_hint: DataWaitHint
        self.progress: Progress
        self.feeder: Feeder
        self.profiler: ProfilerSession

    def note_end(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Note how the run ended, on its way out."""
        del kind, traceback
        if status.is_lead_host:
            with contextlib.suppress(OSError):  # it would hide why the run ended
                workdir = self.trainer.workdir
                workdir_files.note_end(workdir, error=error, step=self.step)

    def until_the_end(self, stack: contextlib.ExitStack) -> None:
        """Run the loop; pending values are written on every way out."""
        trainer = self.trainer
        dispatcher = self._prepare(stack)
        trainer.setup.log_status(f"Starting the training loop at step {self.step}")
        self.hooks.start(self.step, self.state, is_resumed=self.begin.is_resumed)
        self.chrono.start_loop()
        try:
            while not self.is_over and self._continue_at_step():
                self._dispatch(dispatcher)
            self._finish_steps()
        except BaseException as error:
            self._write_what_is_pending(error)
            raise
        if lifecycle.frees_memory(trainer):
            dispatcher.free_programs()

    def _prepare(self, stack: contextlib.ExitStack) -> Dispatcher:
        trainer = self.trainer
        host_steps = HostSteps(trainer, self.last_step)
        dispatcher = make_dispatcher(trainer, host_steps)
        if dispatcher.transforms is not None:
            dispatcher.transforms.leave_out(self.begin.ds_iter)
        self.data_wait_hint = DataWaitHint(trainer, transforms=dispatcher.transforms)
        # While the device is busy with a long dispatch, the next one gets ready, and
        # all the short ones before it.
        depth = (
            1 + dispatcher.size if lifecycle.can_read_ahead(self.begin.ds_iter) else 0
        )
        self.feeder = Feeder(
            self.begin.ds_iter,
            dispatcher,
            step=self.step,
            depth=depth,
            while_waiting=self._leave_if_asked,
        )
        stack.callback(self.feeder.close)
        self.profiler = trainer.profiler.start(self.step)
        stack.callback(self.profiler.close)
        self.progress = stack.enter_context(
            Progress(
                trainer.setup.tqdm_info.desc, step=self.step, last_step=self.last_step
            )
        )
        dispatcher.on_compile = lambda: self.progress.doing("compiling")
        return dispatcher

    #
    # Between two steps
    #

    def _continue_at_step(self) -> bool:
        """Evaluate and save what is due; return whether another update follows."""
        self._note_first_save()
        self.hooks.next_step()
        if self.stop_request.is_set(self.step):
            self._save_and_leave(evals_pending=not self._is_just_resumed())
        self._stop_if_hooks_ask()
        self.evaluated = {}
        if not self._is_just_resumed() or self.begin.evals_pending:
            self._evaluate()
            if self.evaluated and self.hooks:
                values = measured_values(self.evaluated, self.log, self.step)
                self.hooks.after_evaluation(self.step, self.state, values)
                if self._stop_if_hooks_ask():
                    self._evaluate()
        is_last = self.step == self.last_step
        if self._is_just_resumed():
            self._add_metrics()
            if self.begin.evals_pending and self._was_to_be_saved():
                self.hooks.before_checkpoint(self.step, self.state)
                self._complete_checkpoint()
        elif self._should_save(is_last):
            self._save(self.evaluated)
        return not is_last

    def _stop_if_hooks_ask(self) -> bool:
        """Make this the last step if a hook asks for that; return whether it is new."""
        if not self.hooks or self.step == self.last_step:
            return False
        vote = lifecycle.smallest_of_all_processes(self.hooks.vote)
        stop = self.hooks.agree(vote)
        if stop is None:
            return False
        status.log(
            f"Training stops at step {self.step}: {stop.reason} (hook {stop.hook})."
        )
        self.last_step = self.step
        return True

    def _add_metrics(self) -> None:
        """Add to a checkpoint the metrics that the earlier start had no time for."""
        metrics = self._best_metrics(self.evaluated)
        if self.evaluated and metrics is not None:
            self.trainer.checkpointer.add_metrics(metrics, step=self.step)

    def _best_metrics(self, evaluated: dict[str, Any]) -> dict[str, Any] | None:
        """Return values by collection, for a checkpointer that keeps the best."""
        if not getattr(self.trainer.checkpointer, "tracks_metrics", False):
            return None
        return measured_values(evaluated, self.log, self.step)

    def _should_save(self, is_last: bool) -> bool:
        checkpointer = self.trainer.checkpointer
        if checkpointer.should_save(self.step):
            return True
        return (
            is_last
            and lifecycle.is_real(checkpointer)
            and self.step not in checkpointer.all_steps
        )

    def _is_planned(self) -> bool:
        """Return whether a run that nobody interrupts saves this step as well."""
        is_last = self.step == self.last_step
        return is_last or self.trainer.checkpointer.is_due(self.step)

    def _complete_checkpoint(self) -> None:
        """Complete a checkpoint that a signal made early, as if it had been on time."""
        change = getattr(self.trainer.checkpointer, "change_metadata", None)
        if not self.hooks or change is None:
            return
        lifecycle.flush_writers(self.trainer)
        done = {"evals_pending": False, "unplanned": False}
        change({**done, **self._hooks_item(evals_pending=False)}, step=self.step)

    def _was_to_be_saved(self) -> bool:
        """Return whether a step saved because of a signal was due anyway."""
        checkpointer = self.trainer.checkpointer
        return self.step == self.last_step or checkpointer.is_planned(self.step)

    def _is_just_resumed(self) -> bool:
        return self.begin.is_resumed and self.step == self.begin.step

    def _evaluate(self) -> None:
        """Run the evaluators that are due and have not run yet at this step."""
        is_last = self.step == self.last_step
        due = {
            name: evaluator
            for name, evaluator in self.trainer.evals.items()
            if name not in self.evaluated
            and (
                evaluator.run.should_eval_in_train(self.step)
                or (is_last and evaluator.run.includes_last_step)
            )
        }
        if not due:
            return
        self._finish_steps()
        results = {}
        with self.chrono.pause(chrono_lib.Pause.EVALS_ALONG_TRAIN):
            for name, evaluator in due.items():
                self.progress.doing(f"evaluating {name}")
                try:
                    with preemption.watched(self.stop_request):
                        results[name] = evaluator.maybe_eval(
                            step=self.step, state=self.state, is_last=is_last
                        )
                except preemption.StopRequested:
                    self._save_and_leave(evals_pending=True)
        self.evaluated |= results

    def _save(
        self, evaluated: dict[str, Any] | None = None, *, evals_pending: bool = False
    ) -> None:
        self.progress.doing("saving")
        self._finish_steps()  # a value that is not finite must not be saved over
        if evaluated is not None:
            self.hooks.before_checkpoint(self.step, self.state)
        checkpointer = self.trainer.checkpointer
        with self.chrono.pause(chrono_lib.Pause.CHECKPOINT):
            self._check_step_count()
            lifecycle.flush_writers(self.trainer)
            checkpointer.save(
                CheckpointState(
                    self.state, self.chrono, self.begin.position_item(self.feeder)
                ),
                step=self.step,
                metrics=self._best_metrics(evaluated or {}),
                custom_metadata={
                    "evals_pending": evals_pending,
                    "interrupted": evaluated is None,
                    "unplanned": evaluated is None and not self._is_planned(),
                }
                | self._hooks_item(evals_pending),
            )

        self.progress.saved(self.step)
        self.is_save_to_be_noted = not self.has_noted_save

    def _hooks_item(self, evals_pending: bool) -> dict[str, Any]:
        if not self.hooks:
            return {}
        return {"hooks": self.hooks.to_json(evals_pending=evals_pending)}

    def _note_first_save(self) -> None:
        """Note that there is a checkpoint once it is there: see `saved_step`."""
        checkpointer = self.trainer.checkpointer
        if not self.is_save_to_be_noted or checkpointer.is_saving:
            return
        self.is_save_to_be_noted = False
        step = checkpointer.latest_step
        if status.is_lead_host and step is not None:
            self.has_noted_save = True
            workdir_files.note_saved(self.trainer.workdir, step)

    def _leave_if_asked(self) -> None:
        """Save and leave, also while the loop waits for data."""
        if self.stop_request.exit_code is not None:
            self._save_and_leave(evals_pending=False)

    def _save_and_leave(self, *, evals_pending: bool) -> NoReturn:
        """Save this step unless it is saved, and stop."""
        checkpointer = self.trainer.checkpointer
        checkpointer.wait_until_finished()
        if lifecycle.is_real(checkpointer) and checkpointer.latest_step != self.step:
            self._save(evals_pending=evals_pending)
            checkpointer.wait_until_finished()
        self._note_first_save()
        status.log(f"Stopped at step {self.step}, as asked; a new start continues.")
        self.stop_request.leave(self.step)

    #
    # One dispatch
    #

    def _dispatch(self, dispatcher: Dispatcher) -> None:
        step = self.step
        self.progress.doing("reading data")
        start = time.perf_counter()
        try:
            feed = next(self.feeder)
        except StopIteration:
            self._on_data_end()
            return
        self.chrono.add_data_wait(time.perf_counter() - start)
        self.progress.resume()
        with (
            jax.profiler.StepTraceAnnotation("train", step_num=step),
            error_prefix(lambda: f"Step {dispatcher.step} failed: "),
            _hints(),
        ):
            self.state, self.aux, token = dispatcher.run(self.state, feed, step)
        self.step += feed.size
        self.in_flight.append((token, feed.size))
        if self.aux.error is not None:
            with error_prefix(f"Step {step}: "):
                self.aux.error.throw()
        if self.log.pending:
            self._finish_steps(but=1)
        else:
            self._wait_for_steps(but=_MOST_DISPATCHES_IN_FLIGHT)
        if dispatcher.host_steps.logs(step):
            self.log.push(
                step,
                self.aux,
                log_metrics=dispatcher.host_steps.logs_metrics(step),
                log_summaries=dispatcher.host_steps.logs_summaries(step),
            )
        dispatcher.speed = self.chrono.steps_per_sec
        values = self.log.last_values
        self.progress.update(
            self.step,
            values[1].loss_values if values else None,
            speed=dispatcher.speed,
            data_wait=self.chrono.data_wait_fraction,
            slowest_stage=self.data_wait_hint.slowest,
        )
        if self.hooks and dispatcher.host_steps.is_watched(step):
            self._show_to_hooks()
        if self.profiler.is_due(self.step):
            self._wait_for_steps()
            self.profiler.after_step(self.step)

    def _show_to_hooks(self) -> None:
        """Call hooks with what the last update measured, once it is known."""
        assert self.aux is not None
        self._finish_steps()
        values = self.log.last_values
        if values is None or values[0] != self.step - 1:
            values = (self.step - 1, self.aux.replace(summary_states=None).compute())
        measured = {"train": nested_values(values[1])}
        self.hooks.after_step(self.step, self.state, measured)

    def _finish_steps(self, *, but: int = 0) -> None:
        """Wait for all dispatches but the newest `but`; write the last logged values.

        So their time is not charged to what follows, such as an evaluation, and the
        time of what follows is not charged to them.
        """
        self._wait_for_steps(but=but)
        if self.log.pending:
            perf_stats = self.chrono.flush_metrics()
            with self.chrono.measure(chrono_lib.Pause.METRICS_WRITING):
                self.log.write(perf_stats)
            self.data_wait_hint.add(perf_stats)

    def _wait_for_steps(self, *, but: int = 0) -> None:
        """Wait for all dispatches but the newest: memory and Ctrl-C stay bounded."""
        while len(self.in_flight) > but:
            token, size = self.in_flight.popleft()
            token.block_until_ready()
            self.chrono.finish_step(size)

    def _check_step_count(self) -> None:
        """Raise unless the state is that of the step to save."""
        state_step = int(self.state.step)
        if state_step != self.step:
            raise ValueError(
                f"The state says that {state_step} updates were applied, but there were "
                f"{self.step}: does {type(self.trainer.trainstep).__name__}._step return "
                "`state.replace(step=state.step + 1, ...)`?"
            )

    def _on_data_end(self) -> None:
        """Stop here if the data decides how long to train; else it is too short."""
        if self.trainer.num_train_steps is None:
            self.last_step = self.step
            if not self._is_just_resumed():
                self._evaluate()
            if self._should_save(is_last=True):
                self._save(self.evaluated)
            self.is_over = True
            return
        if lifecycle.is_real(self.trainer.checkpointer):
            self._save()
        raise lifecycle.DataEndedError(
            f"The training data ended after {self.step - self.begin.step} batches, at "
            f"step {self.step} of {self.last_step}. Set `cfg.train_ds.num_epochs=None` "
            "to repeat it, or a smaller `cfg.num_train_steps`."
        ) from None

    def _write_what_is_pending(self, error: BaseException) -> None:
        try:
            self._finish_steps()
        except Exception as write_error:
            error.add_note(f"Values of the last logged step were lost: {write_error!r}")


@contextlib.contextmanager
def _hints() -> Iterator[None]:
    """Add advice to errors of JAX that concern a field of the trainer, or the loop."""
    try:
        yield
    except ValueError as error:
        if "checkify" in str(error):
            error.add_note(
                "The model calls `checkify.check`: set `cfg.checkify_error_categories = "
                "jax.experimental.checkify.user_checks` to run its checks."
            )
        raise
    except RuntimeError as error:
        if "Disallowed" in str(error) and "transfer" in str(error):
            error.add_note(
                "A train step must not move data between host and device: the device "
                "would wait. Where it is meant, put it inside "
                "`with jax.transfer_guard('allow'):`."
            )
        raise
