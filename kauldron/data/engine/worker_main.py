"""What runs in a data worker: builds the units its parent asks for.

The parent starts it as a fresh interpreter that does not run the user's script again,
so workers need no `if __name__ == "__main__"`. Requests come in through standard input;
its end means that the parent is gone.
"""

from __future__ import annotations

import cProfile
import os
import pickle
import pstats
import queue
import signal
import sys
import threading
import traceback
from typing import Any, BinaryIO

from kauldron.data.engine import batch_memory

_SECONDS_TO_END = 5.0


def main(parent_pid: int, recipe_fd: int, shared_fd: int) -> None:
    """Serve until the parent closes the pipe, or is gone."""
    requests_in, replies_out = _private_pipes()
    threading.Thread(target=_watch, args=(parent_pid,), daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when to end
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(requests_in, requests), daemon=True)
    reader.start()
    first = requests.get()
    if first is None:
        return
    setup = pickle.loads(first)
    try:
        job = batch_memory.load_shared(recipe_fd)()
    except Exception as error:
        batch_memory.write_frame(
            replies_out, pickle.dumps(("cannot start", _shown(error)))
        )
        return
    try:
        if setup["init_fn"] is not None:
            pickle.loads(setup["init_fn"])(setup["worker"], setup["num_workers"])
    except Exception as error:
        batch_memory.write_frame(replies_out, dump_error(error))
        return
    batch_memory.write_frame(replies_out, pickle.dumps(("ready", None)))
    slots = batch_memory.SharedSlots(shared_fd, setup["num_slots"])
    if setup["profile"]:
        profile = cProfile.Profile()
        profile.runcall(_serve, job, requests, replies_out, slots)
        pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(
            30
        )
    else:
        _serve(job, requests, replies_out, slots)


def dump_error(error: BaseException) -> bytes:
    """Return an exception as a message: itself where it can be pickled, and as text."""
    text = "".join(traceback.format_exception(error))
    cls = type(error)
    if cls.__module__ == "__main__":  # of the parent, which knows it by this name
        setattr(sys.modules["__main__"], cls.__qualname__, cls)
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = None
    return pickle.dumps(("error", (pickled, cls.__name__, text)))


def _serve(
    job: Any,
    requests: queue.SimpleQueue[bytes | None],
    replies_out: BinaryIO,
    slots: batch_memory.SharedSlots,
) -> None:
    while (request := requests.get()) is not None:
        unit, slot = pickle.loads(request)
        try:
            piece = job.build(unit)
            value = (piece.value, piece.survivors, list(piece.skipped))
            message = pickle.dumps(("piece", slots.dump(slot, value)))
        except Exception as error:
            message = dump_error(error)
        try:
            batch_memory.write_frame(replies_out, message)
        except BrokenPipeError:
            return


def _read(stream: BinaryIO, requests: queue.SimpleQueue[bytes | None]) -> None:
    while (frame := batch_memory.read_frame(stream)) is not None:
        requests.put(frame)
    requests.put(None)
    # The parent is gone or wants to go: do not outlive it in a long computation.
    threading.Event().wait(_SECONDS_TO_END)
    os._exit(1)


def _watch(parent_pid: int) -> None:
    """End with the parent also if a process that it forked keeps the pipe open."""
    while os.getppid() == parent_pid:
        threading.Event().wait(1.0)
    os._exit(1)


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes to the parent, out of the way of what the user's code prints."""
    requests_in = os.fdopen(os.dup(0), "rb")
    replies_out = os.fdopen(os.dup(1), "wb")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests_in, replies_out


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
