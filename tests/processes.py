"""Real processes that start at once, forked from a server that has imported everything.

`Process` calls a function in a process of its own, `python(...)` runs what `python ...`
runs, and `fast_python()` is a program that tests put in the place of `sys.executable`.
"""

import atexit
import contextlib
import fcntl
import os
import pathlib
import pickle
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time

from tests import forked_python

DEADLINE_SECS = 180.0
_ROOT = pathlib.Path(__file__).parents[1]
_FOLDER = os.getcwd()
_PYTHON_PATH = os.environ.get("PYTHONPATH", "")  # a test may have set another since
_SESSION = "KAULDRON_TEST_SESSION"  # owner and folder, for the processes of a session


def session_folder():
    """A folder for all processes of this session; it goes when the first of them ends."""
    if _SESSION not in os.environ:
        made = tempfile.mkdtemp(prefix="kauldron-tests-", dir=_place_in_memory())
        atexit.register(_remove, made, os.getpid())
        os.environ[_SESSION] = f"{os.getpid()}:{made}"
    return pathlib.Path(os.environ[_SESSION].partition(":")[2])


def _place_in_memory():
    """Return a file system in memory, if there is one with room for all that tests write.

    Tests write many small files, and wait for the disk where users want to be sure.
    """
    place = "/dev/shm"
    is_there = "TMPDIR" not in os.environ and os.access(place, os.W_OK)
    return place if is_there and shutil.disk_usage(place).free > 4 << 30 else None


def _remove(folder, owner):
    if os.getpid() == owner:  # not where it was forked
        shutil.rmtree(folder, ignore_errors=True)


def fast_python():
    """The path of a program that runs Python programs, and does not wait for imports.

    It is for `sys.executable` in tests of what programs do. In tests of how they start, or
    of what they import, it proves nothing.
    """
    path = session_folder() / "python"
    with _server_lock():
        if not path.exists():
            text = pathlib.Path(forked_python.__file__).read_text()
            made = path.with_name("python.new")
            made.write_text(f"#!{sys.executable} -IS\n{text}")
            made.chmod(0o755)
            made.rename(path)
    _connect().close()  # now there is a server
    return str(path)


def _connect(*libraries):
    address = str(session_folder() / "-".join(("socket", *libraries)))
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        with _server_lock():
            if not os.path.exists(address):
                _start_server(address, libraries)
        connection.connect(address)
    return connection


@contextlib.contextmanager
def _server_lock():
    with (session_folder() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _start_server(address, libraries=()):
    """Start the server; who connects before it is ready waits."""
    folder = session_folder()
    owner = os.environ[_SESSION].partition(":")[0]
    with socket.socket(socket.AF_UNIX) as listener, (folder / "log").open("ab") as log:
        listener.bind(f"{address}.new")
        listener.listen(100)
        command = [sys.executable, "-m", "tests.fork_server"]
        subprocess.Popen(
            [*command, owner, str(listener.fileno()), *libraries],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": _PYTHON_PATH},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    os.rename(f"{address}.new", address)


class Process:
    """A function that runs in a process of its own, and what it prints.

    Args:
      function: A function of a module.
      *arguments: What it is called with.
      environment: Variables of that process; `None` for those that it must not have.
      terminal: The path of a terminal that it runs in; what it writes there is not
        part of `output`.
      stdout: A file that takes what it prints, instead of the terminal.
      limits: Limits of resources (`{resource.RLIMIT_FSIZE: 1000}`).
      cache: Folder of compiled programs, shared with other processes.
    """

    def __init__(
        self,
        function,
        *arguments,
        environment=None,
        terminal=None,
        stdout=None,
        limits=None,
        cache=None,
    ):
        call = pickle.dumps((function, arguments))
        self._start({"call": call}, environment, terminal, stdout, limits, cache)

    def _start(
        self,
        work,
        environment=None,
        terminal=None,
        stdout=None,
        limits=None,
        cache=None,
        libraries=(),
    ):
        variables = {**os.environ, **(environment or {})}
        request = {
            **work,
            "python": sys.executable,
            "environment": {k: v for k, v in variables.items() if v is not None},
            "folder": os.getcwd(),
            "path": [entry or _FOLDER for entry in sys.path],
            "terminal": terminal,
            "stdout": stdout and str(stdout),
            "limits": limits or {},
            "cache": cache and str(cache),
        }
        fd, path = tempfile.mkstemp(prefix="kauldron-process-", suffix=".log")
        self._log = pathlib.Path(path)
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        self._exit_code = None
        self._connection = _connect(*libraries)
        with open(os.devnull) as nothing:
            forked_python.send(self._connection, request, (nothing.fileno(), fd, fd))
        os.close(fd)
        self.pid = forked_python.receive(self._connection)

    @property
    def exit_code(self):
        """As of `subprocess`: negative for a signal, `None` while it runs."""
        self.has_ended_within(0)
        return self._exit_code

    @property
    def output(self):
        return self._log.read_text(errors="replace")

    def send_signal(self, number):
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self.pid, number)

    def wait(self, timeout=DEADLINE_SECS):
        """Wait for the end; return exit code and output."""
        if not self.has_ended_within(timeout):
            self.stop()
            raise AssertionError(f"No end after {timeout:.0f} s:\n{self.output}")
        return self.exit_code, self.output

    def has_ended_within(self, seconds):
        if self._exit_code is None:
            waiting = select.poll()
            waiting.register(self._connection, select.POLLIN)
            if waiting.poll(1000 * seconds):
                self._exit_code = forked_python.receive(self._connection)
        return self._exit_code is not None

    def wait_for(self, text, timeout=DEADLINE_SECS):
        """Wait until the process has printed a text."""
        wait_until(lambda: text in self.output, self, what=repr(text), timeout=timeout)

    def stop(self):
        """End the process if it runs, and forget what it printed."""
        self.send_signal(signal.SIGKILL)
        self.has_ended_within(DEADLINE_SECS)

    def __del__(self):
        self._connection.close()
        self._log.unlink(missing_ok=True)


def python(*words, environment=None, **options):
    """Start what `python words...` starts: `-m module ...`, `-c script ...` or a file."""
    process = Process.__new__(Process)
    environment = {"JAX_PLATFORMS": "cpu", **(environment or {})}
    words = [str(word) for word in words]
    process._start({"words": words}, environment, **options)
    return process


def run_script_with_jax(script, *arguments, environment=None):
    """Run a script in a process that has imported jax, and no more; return its output.

    For tests of what modules of ours import, and in which order: jax itself takes longest.
    """
    process = Process.__new__(Process)
    words = ["-c", textwrap.dedent(script), *map(str, arguments)]
    process._start({"words": words}, environment, libraries=("jax",))
    code, output = process.wait()
    assert code == 0, output
    return output


class Group:
    """Processes that train together: one that is killed takes the others along."""

    def __init__(self, processes):
        self._processes = list(processes)

    def wait(self):
        """Wait for the first; return its exit code, and what all of them printed."""
        first = self._processes[0]
        code, _ = first.wait()
        if code:
            self.stop()
        codes = [process.wait()[0] for process in self._processes]
        output = "\n".join(process.output for process in self._processes)
        return (code or max(codes, key=abs)), output

    def stop(self):
        for process in self._processes:
            process.stop()


def free_port():
    """A port of this machine that nobody listens at."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def wait_until(is_so, *processes, what="it", timeout=DEADLINE_SECS):
    """Poll until something is so; processes must not end before."""
    deadline = time.monotonic() + timeout
    while not is_so():
        for process in processes:
            if process.exit_code is not None and not is_so():
                raise AssertionError(
                    f"The process ended before {what}:\n{process.output}"
                )
        assert time.monotonic() < deadline, f"Waited for {what} for {timeout:.0f} s."
        time.sleep(0.01)
