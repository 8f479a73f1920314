"""Worker processes: each builds every W-th unit; the consumer takes them in turn."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from kauldron.data.engine import batch_memory
from kauldron.data.engine.batches import BatchJob, Piece
from kauldron.data.engine.executors import Executor

_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from kauldron.data.engine import worker_main
worker_main.main(*map(int, sys.argv[2:]))
"""

# Workers must not take memory of the accelerator that the parent computes on.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "CUDA_VISIBLE_DEVICES": "-1",
}

# Workers share the cores already; threads of theirs would only be in each other's way.
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

# How many batches of one worker the consumer may hold without having them copied.
_NUM_HELD = 4


class CannotStartError(Exception):
    """Worker processes are not possible here; the message says why."""


class WorkerExecutor(Executor):
    """Processes build units ahead, `ahead` for each worker.

    Each makes the job itself: `recipe` is pickled and called there.

    Raises:
      CannotStartError: They cannot be started, or cannot load the pipeline.
    """

    def __init__(
        self,
        recipe: Callable[[], BatchJob],
        stop: int | None,
        *,
        num_workers: int,
        ahead: int,
        init_fn: Callable[[int, int], Any] | None = None,
        profile: bool = False,
        describe: Callable[[int], str],
    ):
        import cloudpickle  # classes and functions of scripts and notebooks by value

        super().__init__(stop)
        self._describe = describe
        with _pickling("worker_init_fn"):
            pickled_init_fn = init_fn and cloudpickle.dumps(init_fn)
        with _pickling("the pipeline"):
            shared = batch_memory.SharedValue(recipe, cloudpickle.dumps)
        setup = {
            "init_fn": pickled_init_fn,
            "num_workers": num_workers,
            "num_slots": ahead + _NUM_HELD,
        }
        self._workers: list[_Worker] = []
        self._end = weakref.finalize(self, _close_all, self._workers)
        try:
            for number in range(num_workers):
                self._workers.append(_Worker(number, shared.fd, setup["num_slots"]))
            _write(shared)  # while they import what they need
            for number, worker in enumerate(self._workers):
                mine = {"worker": number, "profile": profile and not number}
                worker.send({**setup, **mine})
            for _ in range(num_workers * ahead):
                self._request()
            for worker in self._workers:
                worker.wait_until_ready()
        except BaseException:
            self.close()
            raise
        finally:
            os.close(shared.fd)

    def get(self) -> Piece:
        unit = self._next - self._outstanding
        if not self._has(unit):
            raise StopIteration
        worker = self._worker_of(unit)
        try:
            piece = worker.receive(lambda: self._describe(unit))
        except Exception:
            self.close()
            raise
        self._request()
        return piece

    def close(self) -> None:
        self._end()

    @property
    def _outstanding(self) -> int:
        return sum(len(worker.pending) for worker in self._workers)

    def _worker_of(self, unit: int) -> _Worker:
        return self._workers[unit % len(self._workers)]

    def _request(self) -> None:
        if self._has(self._next):
            self._worker_of(self._next).request(self._next)
            self._next += 1


class _Worker:
    """One process, its pipes, and its shared memory."""

    def __init__(self, number: int, recipe_fd: int, num_slots: int):
        self.number = number
        self.pending: collections.deque[tuple[int, int]] = collections.deque()
        if os.name != "posix":
            raise CannotStartError("data workers need a POSIX system")
        self._shared_fd = batch_memory.open_shared_file()
        self._shared = batch_memory.SharedReader(
            self._shared_fd, num_slots=num_slots, num_held=_NUM_HELD
        )
        path = json.dumps([os.fspath(entry) for entry in sys.path])
        descriptors = (recipe_fd, self._shared_fd)
        numbers = map(str, (os.getpid(), *descriptors))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, path, *numbers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=descriptors,
                env=_environment(),
            )
        except OSError as error:
            os.close(self._shared_fd)
            raise CannotStartError(f"{sys.executable}: {error}") from error

    def send(self, message: Any) -> None:
        """Send a message; a dead worker is noticed when its answer is awaited."""
        stdin = cast(BinaryIO, self._process.stdin)
        with contextlib.suppress(BrokenPipeError):
            batch_memory.write_frame(stdin, pickle.dumps(message))

    def request(self, unit: int) -> None:
        """Ask for a unit."""
        slot = self._shared.take_slot()
        self.pending.append((unit, slot))
        self.send((unit, slot))

    def wait_until_ready(self) -> None:
        """Wait until the worker has loaded the pipeline."""
        reply = self._read()
        if reply is None:
            raise CannotStartError(
                f"worker {self.number} ended while starting, with exit code"
                f" {self._process.wait()}"
            )
        kind, content = reply
        if kind == "cannot start":
            raise CannotStartError(f"worker {self.number} cannot load it: {content}")
        if kind == "error":
            self._raise(content)

    def receive(self, describe: Callable[[], str]) -> Piece:
        """Return the unit that was asked for first."""
        reply = self._read()
        if reply is None:
            raise RuntimeError(
                f"Data worker {self.number} (process {self._process.pid}) died with"
                f" exit code {self._process.wait()} while building {describe()}. A"
                " negative code is the number of a signal; -9 often means that memory"
                " ran out."
            )
        _, slot = self.pending.popleft()
        kind, content = reply
        if kind == "error":
            self._raise(content)
        value, survivors, skipped = self._shared.load(slot, content)
        return Piece(value, survivors, skipped)

    def _read(self) -> tuple[str, Any] | None:
        frame = batch_memory.read_frame(cast(BinaryIO, self._process.stdout))
        return None if frame is None else pickle.loads(frame)

    def _raise(self, content: tuple[bytes | None, str, str]) -> None:
        pickled, name, text = content
        where = f"In data worker {self.number} (process {self._process.pid}):\n{text}"
        if pickled is None:
            raise RuntimeError(f"A data worker raised {name}.\n{where}")
        error = pickle.loads(pickled)
        error.add_note(where)
        raise error

    def close(self) -> None:
        """Ask the process to end."""
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                assert pipe is not None
                pipe.close()

    def wait(self) -> None:
        """Wait until it has ended; end it if it does not."""
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._shared_fd)


def _close_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.close()
    for worker in workers:
        worker.wait()
    workers.clear()


def _environment() -> dict[str, str]:
    environment = {**os.environ, **_ENVIRONMENT}
    if "OMP_NUM_THREADS" not in os.environ:  # all of these libraries go by it
        for name in _ONE_THREAD:
            environment.setdefault(name, "1")
    return environment


def _write(shared: batch_memory.SharedValue) -> None:
    try:
        shared.write()
    except OSError as error:
        raise CannotStartError(f"no memory to share the pipeline: {error}") from error


@contextlib.contextmanager
def _pickling(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise CannotStartError(
            f"{what} cannot be pickled: {type(error).__name__}: {error}"
        ) from error
