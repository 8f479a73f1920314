"""What every engine starts: runs one job of a work unit and writes down what happens.

    python -m kauldron.kxm.runner <folder of the work unit> <job>

It waits for the jobs that this one comes after, starts the program in a process group of
its own with its output in the log, writes status and events, and passes SIGTERM on. It
imports neither jax nor konfig: it must start quickly and stay small.

The main thread does everything, in a loop: signal handlers only set a flag. A handler
that waits for the program would hang, because the call it interrupted holds the lock.

Exit codes of programs: 0 is success; 143, or death by SIGTERM after the runner was told to
stop, means that the program saved and wants to go on later; other signals are crashes;
everything else is a failure. The runner exits with the code of the program. Whether the
job is to be started again is in its status: `pending` says yes. For engines that see exit
codes alone (`KXM_RESTART_BY_EXIT_CODE`) 143 says yes, and everything else no.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from typing import IO, Any

from kauldron.kxm import records

_TICK_SECONDS = 0.05
_LOOK_SECONDS = 0.5  # between two looks at files and the parent
PREEMPTED = 128 + signal.SIGTERM  # the exit code of what is to be started again
_ERROR_LINE = re.compile(
    r"^(\w+\.)*\w*(Error|Exception|Interrupt|Exit|Warning)\b(:.*)?$|^error: "
)


def main(argv: list[str] | None = None) -> int:
    """Run a job; see the module."""
    folder, job = sys.argv[1:] if argv is None else argv
    return Runner(pathlib.Path(folder), job).run()


class Runner:
    """One attempt at a job."""

    def __init__(self, folder: pathlib.Path, job: str) -> None:
        self.folder = folder
        self.job = job
        self.unit = records.read_unit(folder)
        self.spec = self.unit["jobs"][job]
        self.xp_dir = self.unit["xp_dir"]
        self.rank = process_rank(os.environ)
        self.parent = os.environ.get("KXM_LAUNCHER_PID")
        before = records.read_status(folder, job)["attempt"]
        self.attempt = int(os.environ.get("KXM_NEXT_ATTEMPT") or before + 1)
        self.was_signalled = False  # by the engine: SIGTERM or SIGINT
        self.cause = ""  # why the program was stopped: stop, skip, prune
        self.reason: str | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.binding: Any = None  # of a work unit of an adaptive search
        self._last_look = 0.0
        self._last_beat = 0.0

    def run(self) -> int:
        """Run the program once, and return its exit code."""
        status = records.read_status(self.folder, self.job)
        if status["state"] == records.SUCCEEDED:
            print(f"{self.job} of {self.folder} has succeeded already.")
            return 0
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._note_signal)
        self._set(
            records.PENDING,
            event="waiting",
            attempt=self.attempt,
            host=socket.gethostname(),
            pid=os.getpid(),
            engine=os.environ.get("KXM_ENGINE", status.get("engine")),
            engine_id=os.environ.get("KXM_ENGINE_ID", status.get("engine_id")),
            returncode=None,
            reason=None,
            ended=None,
        )
        if not self._wait_for_others():
            return self._finish(None)
        try:
            if not self._bind():
                return self._finish(None)
            code = self._run_program()
        except Exception as error:  # the record has to say what happened
            self.reason = f"{type(error).__name__}: {error}"
            with self._log() as log:
                log.write(f"{self.reason}\n".encode())
            self._set(records.FAILED, reason=self.reason, returncode=127)
            return 127
        return self._finish(code)

    def _note_signal(self, signum: int, frame: Any) -> None:
        del signum, frame
        self.was_signalled = True

    #
    # Before
    #

    def _wait_for_others(self) -> bool:
        """Wait for the jobs that this one comes after; return whether to start."""
        while True:
            if self._is_told_to_stop():
                return False
            if records.may_start(self.folder, self.spec["after"]):
                return True
            time.sleep(_TICK_SECONDS)

    def _bind(self) -> bool:
        """Ask the search for the values of this work unit; return whether to start."""
        if not self.unit.get("search"):
            return True
        from kauldron.kxm.engines.study import Binding

        self.binding = Binding(self.folder, self.unit, self.job)
        unit = self.binding.bind(self._is_told_to_stop)
        if unit is None:
            return False
        self.unit = unit
        self.spec = unit["jobs"][self.job]
        return True

    def _is_told_to_stop(self) -> bool:
        self._look()
        return self.was_signalled or bool(self.cause)

    #
    # The program
    #

    def environment(self) -> dict[str, str]:
        """Return the environment of the program."""
        own = {
            "KXM_XID": str(self.unit["xid"]),
            "KXM_WID": str(self.unit["wid"]),
            "KXM_JOB": self.job,
            "KXM_ATTEMPT": str(self.attempt),
            "KXM_NUM_WORK_UNITS": str(self.unit["num_work_units"]),
            "KXM_XP_DIR": str(self.xp_dir),
            "KXM_WU_DIR": str(self.folder),
        }
        port = self.spec["env"].get("KXM_PROFILER_PORT")
        if port == "free":
            own["KXM_PROFILER_PORT"] = str(free_port())
            records.write_status(
                self.folder, self.job, profiler_port=own["KXM_PROFILER_PORT"]
            )
        # What concerns this runner alone is not for launchers that the program starts.
        mine = ("KXM_LAUNCHER_PID", "KXM_NEXT_ATTEMPT", "KXM_RESTART_BY_EXIT_CODE")
        engine = {k: v for k, v in os.environ.items() if k not in mine}
        return {**engine, **self.spec["env"], **own}

    def _run_program(self) -> int:
        with self._log() as log:
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            command = shlex.join(self.spec["argv"])
            header = (
                f"--- attempt {self.attempt} at {now} on {socket.gethostname()}: "
                f"{command}\n"
            )
            log.write(header.encode())
            log.flush()
            self.process = subprocess.Popen(
                self.spec["argv"],
                cwd=self.spec["cwd"],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started = time.time()
        pid = self.process.pid
        self._set(records.RUNNING, event="started", started=started, program_pid=pid)
        return self._watch(self.process)

    def _log(self) -> IO[bytes]:
        path = records.log_path(self.folder, self.job, self.rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")

    def _watch(self, process: subprocess.Popen[bytes]) -> int:
        deadline: float | None = None
        end = _end_descriptors(process.pid)
        while (code := process.poll()) is None:
            self._look()
            if deadline is None and (self.was_signalled or self.cause):
                deadline = time.monotonic() + self.spec["grace_s"]
                _signal_group(process.pid, signal.SIGTERM)
            elif deadline is not None and time.monotonic() > deadline:
                _signal_group(process.pid, signal.SIGKILL)
            select.select(end, [], [], _TICK_SECONDS)
        for descriptor in end:
            os.close(descriptor)
        _signal_group(process.pid, signal.SIGKILL)  # children that it left behind
        return code

    def _look(self) -> None:
        """Look around, not too often: requests to stop, other jobs, the launcher."""
        now = time.monotonic()
        if now - self._last_look < _LOOK_SECONDS:
            return
        self._last_look = now
        if self.cause:
            return
        if records.is_stop_requested(self.folder):
            self.cause = "stop"
        elif self.parent and str(os.getppid()) != self.parent:
            self.cause, self.reason = "stop", "the launcher is gone"
            self._stop_those_that_wait()
        elif reason := records.reason_to_skip(self.folder, self.spec["after"]):
            self.cause, self.reason = "skip", reason
        elif self.process and self.binding and self.binding.should_prune():
            self.cause, self.reason = "prune", "not promising"
        is_beat_due = now - self._last_beat > records.HEARTBEAT_SECONDS
        if self.process is not None and self.rank == 0 and is_beat_due:
            self._last_beat = now
            records.write_status(self.folder, self.job)

    def _stop_those_that_wait(self) -> None:
        """Write for the launcher that jobs it did not start have stopped."""
        if records.is_locked(self.xp_dir):  # someone has resumed them
            return
        record = records.private(self.xp_dir) / "experiment.json"
        for unit in records.read_json(record, {"units": []})["units"]:
            unit_dir = pathlib.Path(self.xp_dir, unit["folder"])
            for job in unit["jobs"]:
                status = records.read_status(unit_dir, job)
                is_alive = records.is_alive(status.get("pid"), status.get("host"))
                if status["state"] == records.PENDING and not is_alive:
                    records.set_state(
                        self.xp_dir, unit["wid"], unit_dir, job, records.STOPPED
                    )

    #
    # After
    #

    def _finish(self, code: int | None) -> int:
        """Write how it ended; `code` is None if the program never started."""
        status = records.read_status(self.folder, self.job)
        state, changes = outcome(
            code,
            cause=self.cause,
            was_signalled=self.was_signalled,
            restart=self.spec["restart"],
            restarts=status.get("restarts", 0),
            max_restarts=self.spec["max_restarts"],
        )
        if code and state in (records.FAILED, records.PENDING):
            changes["reason"] = _last_error(self.folder, self.job) or changes["reason"]
        if self.reason and state != records.SUCCEEDED:
            changes["reason"] = self.reason
        self._set(state, returncode=code, **changes)
        if self.binding is not None and self.rank == 0:
            problem = self.binding.conclude()
            if problem:
                self._set(records.FAILED, reason=problem)
        return self._exit_code(state, code)

    def _exit_code(self, state: str, code: int | None) -> int:
        if os.environ.get("KXM_RESTART_BY_EXIT_CODE"):
            if state in (records.PENDING, records.FAILED):
                return PREEMPTED if state == records.PENDING else 1
            return 0
        if code is None:
            return 0 if state == records.SKIPPED else PREEMPTED
        return 128 - code if code < 0 else code

    def _set(self, state: str, **changes: Any) -> None:
        if self.rank == 0:
            wid = self.unit["wid"]
            records.set_state(self.xp_dir, wid, self.folder, self.job, state, **changes)


def outcome(
    code: int | None,
    *,
    cause: str,
    was_signalled: bool,
    restart: str,
    restarts: int,
    max_restarts: int,
) -> tuple[str, dict[str, Any]]:
    """Return the state of a job whose program ended, and what else to write.

    Args:
      code: What `Popen` gives; `None` if the program never started.
      cause: Why it was stopped, if it was: `stop`, `skip` or `prune`.
      was_signalled: Whether the engine told the runner to stop.
      restart: When to start again.
      restarts: How often it was started again so far.
      max_restarts: How often it may be.
    """
    if cause in ("skip", "prune"):
        return {"skip": records.SKIPPED, "prune": records.PRUNED}[cause], {}
    if code == 0:
        return records.SUCCEEDED, {"reason": None}
    if cause == "stop":
        return records.STOPPED, {"reason": None}
    if was_signalled and (code is None or code < 0 or code == PREEMPTED):
        return records.PENDING, {"event": "preempted", "reason": "preempted"}
    assert code is not None
    by_signal = code < 0 or code == PREEMPTED
    reason = f"signal {-code}" if code < 0 else f"exit code {code}"
    again = restart == "on_failure" or (restart == "on_signal" and by_signal)
    if again and restarts < max_restarts:
        changes = {"event": "restarted", "restarts": restarts + 1, "reason": reason}
        return records.PENDING, changes
    return records.FAILED, {"reason": reason}


def process_rank(environment: Any) -> int:
    """Return which process of a job of several processes this is."""
    names = ["KXM_PROCESS_ID", "JOB_COMPLETION_INDEX"]
    if environment.get("SLURM_STEP_NUM_TASKS", "1") not in ("", "0", "1"):
        names.insert(1, "SLURM_PROCID")
    ranks = (environment.get(name, "") for name in names)
    return next((int(rank) for rank in ranks if rank.isdecimal()), 0)


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def _end_descriptors(pid: int) -> list[int]:
    """Return what becomes readable when a process ends, where the system has that."""
    with contextlib.suppress(OSError, AttributeError):
        return [os.pidfd_open(pid)]
    return []


def _signal_group(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signum)


def _last_error(folder: pathlib.Path, job: str) -> str | None:
    """Return the last line of a log that looks like an exception."""
    try:
        with records.log_path(folder, job).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - (1 << 16)))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        if line.startswith("--- attempt "):
            return None
        if _ERROR_LINE.match(line):
            return line[:300]
    return None


if __name__ == "__main__":
    sys.exit(main())
