"""The process through which a job of several processes writes its errors."""

import subprocess
import sys
import time

import pytest

from kauldron.cli import fatal_errors

LAST_WORDS = b"""\
W1116 21:21:23.376 2317 preemption_sync_manager.cc:147] Failed to retrieve a notice
Additional GRPC error information from remote target coordination_service:
E1116 20:23:28.079 26521 coordination_service.cc:1549] Use error polling to propagate:
  1
The tasks have crashed.
F1116 20:23:28.080 26532 client.h:80] Terminating process because the JAX distributed \
service detected fatal errors.
*** Check failure stack trace: ***
    @     0x7efc9d040634  absl::LogMessage::SendToLog()
"""


def _filter():
    return subprocess.Popen(
        [sys.executable, "-S", fatal_errors.__file__],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_last_words_become_one_line(size):
    process = _filter()
    text = b"Preparing the state\n" + LAST_WORDS
    for start in range(0, len(text), size):
        process.stdin.write(text[start : start + size])
        process.stdin.flush()
    _, errors = process.communicate(timeout=30)
    told = fatal_errors.ANOTHER_HAS_ENDED.encode()
    assert errors == b"Preparing the state\n" + told + b"\n"


def test_everything_else_passes_unchanged():
    text = (
        b"a\rb\x00\xff\n\n"
        b"E1116 20:23:28 coordination_service.cc:10] something that passed\nF off\nEnd"
    )
    _, errors = _filter().communicate(text, timeout=30)
    assert errors == text


def test_a_bar_is_seen_while_it_grows():
    process = _filter()
    process.stdin.write(b"\r 10 %")
    process.stdin.flush()
    assert process.stderr.read1(100) == b"\r 10 %"
    process.stdin.close()
    process.wait(timeout=30)


def test_an_error_that_was_not_the_end_is_only_late():
    process = _filter()
    line = LAST_WORDS.splitlines(keepends=True)[0]
    process.stdin.write(line)
    process.stdin.flush()
    start = time.monotonic()
    assert process.stderr.read1(1000) == line
    assert time.monotonic() - start < 20
    process.stdin.close()
    process.wait(timeout=30)


def test_the_errors_of_c_go_through_it_too():
    script = (
        "import os\n"
        "from kauldron.cli.fatal_errors import shorten_fatal_errors\n"
        "shorten_fatal_errors()\n"
        f"os.write(2, {LAST_WORDS!r})\n"
        "os.abort()\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60
    )
    assert process.stderr.decode() == fatal_errors.ANOTHER_HAS_ENDED + "\n"
