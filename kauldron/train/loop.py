"""The training loop: `trainer.train()`."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import jax

from kauldron.train import final_evals, preemption, problems, start
from kauldron.train.checkpoint_state import CheckpointState
from kauldron.train.closing import close_at_the_end
from kauldron.train.deferred_log import DeferredLog
from kauldron.train.dispatch import Dispatcher, make_dispatcher
from kauldron.train.feeder import Feeder
from kauldron.train.host_steps import HostSteps
from kauldron.train.last_step import DataEndedError, find_last_step
from kauldron.train.progress import Progress
from kauldron.train.workdir_lock import workdir_lock
from kauldron.utils import chrono as chrono_lib
from kauldron.utils import status
from kauldron.utils.error_context import error_prefix

if TYPE_CHECKING:
    from kauldron.train.auxiliaries import AuxiliariesState
    from kauldron.train.profiler import ProfilerSession
    from kauldron.train.train_state import TrainState
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
    last_step = find_last_step(trainer)
    trainer.setup.run(trainer)
    with contextlib.ExitStack() as stack:
        if status.is_lead_host:
            stack.enter_context(workdir_lock(trainer.workdir))
        stop_request = stack.enter_context(
            preemption.stop_on_signals("saving at the next step")
        )
        close_at_the_end(stack, trainer)
        for evaluator in trainer.evals.values():
            evaluator.on_train_start(last_step=last_step)
        trainer.setup.log_status("Preparing the state")
        begin = start.start_or_resume(trainer, last_step)
        if begin.is_complete:
            begin.ds_iter.close()
            with final_evals.leaving_if_asked(stop_request, begin.step):
                return final_evals.finish_complete_run(trainer, begin), None
        run = _Run(trainer, begin, last_step, stop_request)
        state, aux, step = run.until_the_end(stack)
        with final_evals.leaving_if_asked(stop_request, step):
            return final_evals.finish(trainer, state, step), aux


class _Run:
    """The mutable side of one `train()` call."""

    def __init__(
        self,
        trainer: Trainer,
        begin: start.Start,
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
        self.aux: AuxiliariesState | None = None
        self.is_over = False
        self.log = DeferredLog(trainer)
        self.in_flight: collections.deque[tuple[jax.Array, int]] = collections.deque()
        self.progress: Progress
        self.feeder: Feeder
        self.profiler: ProfilerSession

    def until_the_end(
        self, stack: contextlib.ExitStack
    ) -> tuple[TrainState, AuxiliariesState | None, int]:
        """Run the loop; pending values are written on every way out."""
        trainer = self.trainer
        dispatcher = self._prepare(stack)
        trainer.setup.log_status(f"Starting the training loop at step {self.step}")
        self.chrono.start_loop()
        try:
            while not self.is_over and self._continue_at_step():
                self._dispatch(dispatcher)
            self._finish_steps()
        except BaseException as error:
            self._write_what_is_pending(error)
            raise
        return self.state, self.aux, self.step

    def _prepare(self, stack: contextlib.ExitStack) -> Dispatcher:
        trainer = self.trainer
        host_steps = HostSteps(trainer, self.last_step)
        dispatcher = make_dispatcher(trainer, host_steps)
        # While the device is busy with a long dispatch, the next one gets ready, and
        # all the short ones before it.
        depth = 1 + dispatcher.size if start.can_read_ahead(self.begin.ds_iter) else 0
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
        return dispatcher

    #
    # Between two steps
    #

    def _continue_at_step(self) -> bool:
        """Evaluate and save what is due at this step; whether another update follows."""
        if self.stop_request.is_set(self.step):
            self._save_and_leave(evals_pending=not self._is_just_resumed())
        evaluated: dict[str, Any] = {}
        if not self._is_just_resumed() or self.begin.evals_pending:
            evaluated = self._evaluate()
        is_last = self.step == self.last_step
        if not self._is_just_resumed() and self._should_save(is_last):
            self._save(evaluated)
        return not is_last

    def _should_save(self, is_last: bool) -> bool:
        checkpointer = self.trainer.checkpointer
        if checkpointer.should_save(self.step):
            return True
        return (
            is_last
            and start.is_real(checkpointer)
            and self.step not in checkpointer.all_steps
        )

    def _is_just_resumed(self) -> bool:
        return self.begin.is_resumed and self.step == self.begin.step

    def _evaluate(self, *, at_data_end: bool = False) -> dict[str, Any]:
        """Run what is due at this step, and at the last one all that runs along.

        Where the data ends without notice, what is due by its own rule has run before.
        """
        is_last = self.step == self.last_step
        due = {}
        for name, evaluator in self.trainer.evals.items():
            is_regular = evaluator.run.should_eval_in_train(self.step)
            is_extra = is_last and evaluator.run.includes_last_step and not is_regular
            if is_extra or (is_regular and not at_data_end):
                due[name] = evaluator
        if not due:
            return {}
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
        return results

    def _save(
        self, evaluated: dict[str, Any] | None = None, *, evals_pending: bool = False
    ) -> None:
        self.progress.doing("saving")
        self._finish_steps()  # a value that is not finite must not be saved over
        checkpointer = self.trainer.checkpointer
        with self.chrono.pause(chrono_lib.Pause.CHECKPOINT):
            self._check_step_count()
            self.trainer.writer.flush()
            checkpointer.save(
                CheckpointState(
                    self.state, self.chrono, self.begin.position_item(self.feeder)
                ),
                step=self.step,
                metrics=start.best_metrics(evaluated or {}, self.log, self.step)
                if getattr(checkpointer, "tracks_metrics", False)
                else None,
                custom_metadata={
                    "evals_pending": evals_pending,
                    "interrupted": evaluated is None,
                },
            )

    def _leave_if_asked(self) -> None:
        """While the loop waits for data: what was asked for must not wait too."""
        if self.stop_request.exit_code is not None:
            self._save_and_leave(evals_pending=False)

    def _save_and_leave(self, *, evals_pending: bool) -> NoReturn:
        """Save this step unless it is saved, and stop."""
        checkpointer = self.trainer.checkpointer
        checkpointer.wait_until_finished()
        if start.is_real(checkpointer) and checkpointer.latest_step != self.step:
            self._save(evals_pending=evals_pending)
            checkpointer.wait_until_finished()
        status.log(f"Stopped at step {self.step}, as asked; a new start continues.")
        self.stop_request.leave(self.step)

    #
    # One dispatch
    #

    def _dispatch(self, dispatcher: Dispatcher) -> None:
        step = self.step
        self.progress.resume()
        try:
            feed = next(self.feeder)
        except StopIteration:
            self._on_data_end()
            return
        with (
            jax.profiler.StepTraceAnnotation("train", step_num=step),
            error_prefix(lambda: f"Step {step} failed: "),
            _hints(),
        ):
            self.state, self.aux, token = dispatcher.run(self.state, feed, step)
        self.step += feed.size
        self.in_flight.append((token, feed.size))
        self._throw_check_errors(step, self.aux)
        if self.log.is_pending:
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
        values = self.log.last_values
        self.progress.update(
            self.step,
            values[1].loss_values if values else None,
            speed=self.chrono.steps_per_sec,
        )
        if self.profiler.is_due(self.step):
            self._wait_for_steps()
            self.profiler.after_step(self.step)

    def _finish_steps(self, *, but: int = 0) -> None:
        """Wait for all dispatches but the newest; write what the last logged step says.

        What follows, such as an evaluation, is then not charged for their time, nor are
        they for its.
        """
        self._wait_for_steps(but=but)
        if self.log.is_pending:
            perf_stats = self.chrono.flush_metrics()
            with self.chrono.measure(chrono_lib.Pause.METRICS_WRITING):
                self.log.write(perf_stats)

    def _wait_for_steps(self, *, but: int = 0) -> None:
        """Wait for all dispatches but the newest: memory and Ctrl-C stay bounded."""
        while len(self.in_flight) > but:
            token, size = self.in_flight.popleft()
            token.block_until_ready()
            self.chrono.finish_step(size)

    def _throw_check_errors(self, step: int, aux: AuxiliariesState) -> None:
        if aux.error is not None:
            with error_prefix(f"Step {step}: "):
                aux.error.throw()

    def _check_step_count(self) -> None:
        """A checkpoint must hold the state of the step that it is called after."""
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
            is_new = not self._is_just_resumed()
            evaluated = self._evaluate(at_data_end=True) if is_new else {}
            if self._should_save(is_last=True):
                self._save(evaluated)
            self.is_over = True
            return
        if start.is_real(self.trainer.checkpointer):
            self._save()
        raise DataEndedError(
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
    """Where JAX does not know that a field of the trainer, or the loop, is concerned."""
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
