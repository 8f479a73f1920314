"""Print one readable line where jax ends a process because another one has died.

jax notices this in a C++ thread, which prints a stack trace and aborts; the process
itself can no longer print anything. In a job of several processes, each one therefore
sends its standard error through a small process of its own: this file, run as a script.
Everything but jax's last words passes unchanged.
"""

import os
import re
import select
import signal
import subprocess
import sys

ANOTHER_HAS_ENDED = (
    "error: Another process of this job has ended, so this one ends too. Start the job "
    "again to continue from the last checkpoint."
)

_LAST_WORDS = re.compile(rb"^F\d{4} .*Terminating process because the JAX distributed")
# What jax prints right before, each of several lines.
_MAY_BE_BEFORE = re.compile(
    rb"^[EW]\d{4} .*(coordination_service|preemption_sync_manager)"
)
_LONGEST_HOLD_SECONDS = 2.0


def shorten_fatal_errors() -> None:
    """Send the standard error of this process, C++ included, through the filter."""
    sys.stderr.flush()
    reading, writing = os.pipe()
    subprocess.Popen(
        [sys.executable, "-S", "-E", __file__],
        stdin=reading,
        stdout=subprocess.DEVNULL,
    )
    os.dup2(writing, sys.stderr.fileno())
    os.close(reading)
    os.close(writing)


def _pass_on() -> None:
    # Signals do not end the filter: handlers of the writing process may still print.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    held, rest = b"", b""
    while True:
        is_ready = select.select([0], [], [], _LONGEST_HOLD_SECONDS)[0]
        if not is_ready:
            held = _write(held + rest)
            rest = b""
            continue
        new = os.read(0, 1 << 16)
        *lines, rest = (rest + new).split(b"\n")
        for line in lines:
            if _LAST_WORDS.match(line):
                _write(f"{ANOTHER_HAS_ENDED}\n".encode())
                return _swallow()
            if held or _MAY_BE_BEFORE.match(line):
                held += line + b"\n"
            else:
                _write(line + b"\n")
        if not held and not rest.startswith((b"E", b"F", b"W")):
            rest = _write(rest)  # bars and prompts have no end of line
        if not new:
            _write(held + rest)
            return None


def _swallow() -> None:
    while os.read(0, 1 << 16):
        pass


def _write(data: bytes) -> bytes:
    while data:
        data = data[os.write(2, data) :]
    return b""


if __name__ == "__main__":
    _pass_on()
