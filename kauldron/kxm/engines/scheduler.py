"""Engines whose launcher keeps running: it starts and restarts the runners of jobs.

One thread does everything. What runs, and how it ended, is in the status files that the
runners write; the scheduler decides what starts next and which devices it gets.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kauldron.kxm import records
from kauldron.kxm.engines.executor import Executor, runner_command, unfinished
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob
from kauldron.kxm.runner import free_port, outcome

if TYPE_CHECKING:
    from kauldron.kxm.engines.local import Machine
    from kauldron.kxm.handle import ExperimentHandle

_REFRESH_SECONDS = 0.25
_TICK_SECONDS = 0.1
_LOOK_SECONDS = 0.5  # between two looks at the files of jobs that wait


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ScheduledExecutor(Executor):
    """Base of engines that start jobs with a `Scheduler`: its options."""

    waits: ClassVar[bool] = True

    max_parallel: int | None = None
    backoff_s: float = 5.0
    fail_fast: bool = False
    stream: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("max_parallel")

    def wait(self, handle: ExperimentHandle, timeout: float | None = None) -> bool:
        """Wait for the end, showing what happens; see `Executor.wait`.

        Raises:
          KeyboardInterrupt: Ctrl-C was pressed. Programs have saved and stopped.
          SystemExit: SIGTERM or SIGHUP came. Programs have saved and stopped.
        """
        if handle.session is None:  # launched by another process
            return super().wait(handle, timeout)
        from kauldron.kxm.engines.display import Display

        scheduler: Scheduler = handle.session
        with _signals(scheduler), Display(handle, scheduler) as display:
            is_done = scheduler.join(timeout, display.update, _REFRESH_SECONDS)
        if scheduler.error is not None:
            raise scheduler.error
        if scheduler.signum is not None:
            text = f"`kauldron xp resume {handle.xid}` goes on."
            if scheduler.signum == signal.SIGINT:
                raise KeyboardInterrupt(text)
            print(text, file=sys.stderr)
            raise SystemExit(128 + scheduler.signum)
        return is_done


@contextlib.contextmanager
def _signals(scheduler: Scheduler) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP stop the programs, and the second Ctrl-C kill them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(signum: int, frame: Any) -> None:
        del frame
        scheduler.request_stop(signum)

    kinds = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    # What is ignored stays so: that is how `nohup` works.
    kinds = [kind for kind in kinds if signal.getsignal(kind) is not signal.SIG_IGN]
    before = {signum: signal.signal(signum, handler) for signum in kinds}
    try:
        yield
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)


@dataclasses.dataclass(eq=False)
class Task:
    """A job that is to run, and its runners while it does."""

    unit: WorkUnit
    job: WorkUnitJob
    processes: list[Any] = dataclasses.field(default_factory=list)  # like Popen
    gpus: list[str] = dataclasses.field(default_factory=list)
    not_before: float = 0.0
    attempt: int = 0  # before it was started
    bad_code: int | None = None  # of the first process that ended badly
    is_done: bool = False

    @property
    def state(self) -> str:
        return self.unit.state_of(self.job.name)

    @property
    def is_beside(self) -> bool:
        """Whether it runs beside another job, as an evaluator does."""
        return "started" in self.job.after.values()


class Scheduler:
    """Runs the unfinished jobs of work units.

    Args:
      engine: The engine, which has the options.
      units: The work units, in order.
      machine: What there is to share.
      processes: How many processes each job has.
    """

    def __init__(
        self,
        engine: ScheduledExecutor,
        units: Sequence[WorkUnit],
        machine: Machine,
        *,
        processes: int = 1,
    ) -> None:
        self.engine = engine
        self.processes = processes
        self.machine = machine
        self.tasks = [Task(unit, job) for unit, job in unfinished(units)]
        self.events: list[tuple[float, Task, str]] = []  # for the display
        self.signum: int | None = None  # what stopped it
        self.error: BaseException | None = None
        self._waiting = list(self.tasks)
        self._running: list[Task] = []
        self._last_look = -_LOOK_SECONDS
        self._free_gpus = list(machine.gpus)
        self._is_stopping = False
        self._is_killing = False
        self._wake = threading.Event()
        self._stack = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._run, name="kxm-scheduler")

    def start(self) -> None:
        """Begin, in a thread.

        Raises:
          RuntimeError: Another process runs the experiment.
        """
        if not self.tasks:
            return
        self._stack.enter_context(records.launcher_lock(self.tasks[0].unit.xp_dir))
        self._thread.start()

    def join(
        self, timeout: float | None, update: Callable[[], None], refresh: float
    ) -> bool:
        """Wait for the end; return whether it came before the timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive():
            update()
            if deadline is not None and time.monotonic() > deadline:
                return False
            self._thread.join(refresh)
        update()
        return True

    def request_stop(self, signum: int | None = None) -> None:
        """Let programs save and stop; the second time, kill them."""
        if self._is_stopping and signum == signal.SIGINT:
            self._is_killing = True
        self._is_stopping = True
        self.signum = self.signum or signum
        self._wake.set()

    #
    # The thread
    #

    def _run(self) -> None:
        try:
            with self._stack:
                while self._step():
                    self._wake.wait(_TICK_SECONDS)
                    self._wake.clear()
        except BaseException as error:  # shown by whoever waits
            self.error = error
            for task in self._running:
                self._kill(task)

    def _step(self) -> bool:
        """Do what can be done now; return whether anything is left."""
        for task in self._running:
            self._look_at(task)
        now = time.monotonic()
        if self._is_stopping or now - self._last_look > _LOOK_SECONDS:
            self._last_look = now
            for task in self._waiting:
                self._stop_or_skip(task)
        if self._is_stopping:
            for task in self._running:
                self._tell_to_stop(task)
        else:
            for task in self._waiting:
                if self._can_start(task):
                    self._start(task)
        self._waiting = [t for t in self._waiting if not t.is_done and not t.processes]
        return bool(self._waiting or self._running)

    def _note(self, task: Task, event: str) -> None:
        self.events.append((time.time(), task, event))

    #
    # Starting
    #

    def _can_start(self, task: Task) -> bool:
        if task.is_done or time.monotonic() < task.not_before:
            return False
        after = task.job.after
        return self._has_room(task) and records.may_start(task.unit.folder, after)

    def _has_room(self, task: Task) -> bool:
        gpus = self.machine.gpus_for(task.job)
        if gpus > len(self._free_gpus):
            return False
        beside = [t for t in self._running if t.is_beside == task.is_beside]
        if self.engine.max_parallel is not None:
            return len(beside) < self.engine.max_parallel
        if gpus:
            return True
        if task.job.accelerator is not None and task.job.accelerator.kind == "tpu":
            return not beside
        on_cpu = [t.job for t in beside if not t.gpus]
        taken = sum(map(self.machine.cores_for, on_cpu))
        needed = self.machine.cores_for(task.job)
        return not on_cpu or taken + needed <= self.machine.cores

    def _start(self, task: Task) -> None:
        count = self.machine.gpus_for(task.job)
        task.gpus = [self._free_gpus.pop(0) for _ in range(count)]
        status = records.read_status(task.unit.folder, task.job.name)
        task.attempt = status["attempt"]
        task.bad_code = None
        shared = {
            "KXM_LAUNCHER_PID": str(os.getpid()),
            "KXM_NEXT_ATTEMPT": str(task.attempt + 1),
            "KXM_ENGINE": "local",
        }
        if self.processes > 1:
            shared["KXM_NUM_PROCESSES"] = str(self.processes)
            shared["JAX_COORDINATOR_ADDRESS"] = f"127.0.0.1:{free_port()}"
        for rank in range(self.processes):
            share = task.gpus[rank :: self.processes]
            own = {"KXM_PROCESS_ID": str(rank)} if self.processes > 1 else {}
            devices = self.machine.environment(task.job, share)
            task.processes.append(
                self._start_runner(task, rank, {**shared, **own, **devices})
            )
        self._running = [*self._running, task]
        self._note(task, "started" if not task.attempt else "started again")

    def _start_runner(self, task: Task, rank: int, env: dict[str, str]) -> Any:
        path = records.log_path(task.unit.folder, task.job.name, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as log:
            runner = subprocess.Popen(
                runner_command(task.unit, task.job.name),
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is for the launcher
            )
        threading.Thread(target=self._wake_after, args=(runner,), daemon=True).start()
        return runner

    def _wake_after(self, runner: subprocess.Popen[bytes]) -> None:
        runner.wait()
        self._wake.set()

    #
    # Ending
    #

    def _look_at(self, task: Task) -> None:
        codes = [process.poll() for process in task.processes]
        bad = [code for code in codes if code]
        if bad and task.bad_code is None:
            task.bad_code = bad[0]
        if None in codes:
            if bad and len(codes) > 1:  # the others would wait for it for ever
                for process in task.processes:
                    if process.poll() is None:
                        process.terminate()
            return
        task.processes = []
        self._running = [t for t in self._running if t is not task]
        self._free_gpus = [g for g in self.machine.gpus if g not in self._taken()]
        self._settle(task)

    def _taken(self) -> set[str]:
        return {gpu for task in self._running for gpu in task.gpus}

    def _settle(self, task: Task) -> None:
        """Decide what comes after the runners of a task have ended."""
        status = records.read_status(task.unit.folder, task.job.name)
        state = status["state"]
        if state == records.RUNNING:  # the runner was killed
            _kill_program(status)
            state = self._crashed(task, status, -signal.SIGKILL)
        elif state == records.PENDING and status["attempt"] == task.attempt:
            log = records.log_path(task.unit.folder, task.job.name)
            reason = f"the runner did not start, see {log}"
            task.unit.set_state(task.job.name, records.FAILED, reason=reason)
            state = records.FAILED
        elif self._ended_in_part(task, state):
            state = self._crashed(task, status, task.bad_code or 1)
        if state == records.PENDING and not self._is_stopping:
            status = records.read_status(task.unit.folder, task.job.name)
            restarts = max(1, status.get("restarts", 0))
            wait = self.engine.backoff_s * 2 ** (restarts - 1)
            task.not_before = time.monotonic() + wait
            self._note(task, f"ended ({status.get('reason')}), starts again")
            self._waiting = sorted([*self._waiting, task], key=self.tasks.index)
            return
        if state == records.PENDING:
            task.unit.set_state(task.job.name, records.STOPPED)
            state = records.STOPPED
        task.is_done = True
        self._note(task, state)
        if state == records.FAILED and self.engine.fail_fast:
            self.request_stop()

    def _ended_in_part(self, task: Task, state: str) -> bool:
        """Return whether another process than the first ended badly by itself."""
        is_shared = self.processes > 1 and state != records.FAILED
        is_asked = records.is_stop_requested(task.unit.folder)
        return is_shared and bool(task.bad_code) and not is_asked

    def _crashed(self, task: Task, status: dict[str, Any], code: int) -> str:
        code = 128 - code if code > 128 else code  # of a runner: -9 again
        state, changes = outcome(
            code,
            cause="stop" if self._is_stopping else "",
            was_signalled=False,
            restart=task.job.restart,
            restarts=status.get("restarts", 0),
            max_restarts=task.job.max_restarts,
        )
        task.unit.set_state(task.job.name, state, returncode=code, **changes)
        return state

    def _stop_or_skip(self, task: Task) -> None:
        """End a task that waits, if it is not to start any more."""
        if self._is_stopping or records.is_stop_requested(task.unit.folder):
            self._end(task, records.STOPPED)
        elif reason := records.reason_to_skip(task.unit.folder, task.job.after):
            self._end(task, records.SKIPPED, reason=reason)

    def _end(self, task: Task, state: str, **details: Any) -> None:
        task.unit.set_state(task.job.name, state, **details)
        task.is_done = True
        self._note(task, state)

    def _tell_to_stop(self, task: Task) -> None:
        if self._is_killing:
            self._kill(task)
            return
        if not records.is_stop_requested(task.unit.folder):
            records.request_stop(task.unit.folder)

    def _kill(self, task: Task) -> None:
        status = records.read_status(task.unit.folder, task.job.name)
        if status["state"] == records.RUNNING:
            _kill_program(status)
        for process in task.processes:
            process.kill()


def _kill_program(status: dict[str, Any]) -> None:
    pid = status.get("program_pid")
    if pid and status.get("host") == socket.gethostname():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
