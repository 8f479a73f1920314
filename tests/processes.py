"""Real processes that start at once: forked from a server that has imported everything.

A new Python that imports jax costs about three seconds of a processor. The server pays
for that once, and has no backend, no threads and no devices: what it forks can choose
its own number of devices, receives real signals, and ends with real exit codes.
"""

import atexit
import contextlib
import gc
import logging
import multiprocessing
import os
import pathlib
import resource
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback

_PRELOADED = [
    "jax",
    "flax.linen",
    "optax",
    "orbax.checkpoint",
    "tensorboardX",
    "kauldron.kd",
    "kauldron.ckpts.orbax_io",
    "kauldron.cli.main",
    "kauldron.data.checkpointing",
    "kauldron.data.engine.workers",
    "kauldron.data.in_memory",
    "kauldron.data.py.sources",
    "kauldron.evals.evaluator",
    "kauldron.nn.layers",
    "tests.faults.experiments",
]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(_PRELOADED)
DEADLINE_SECS = 180.0


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
        fd, path = tempfile.mkstemp(prefix="kauldron-process-", suffix=".log")
        os.close(fd)
        self._log = pathlib.Path(path)
        settings = (environment or {}, terminal, stdout, limits or {}, cache)
        self._process = _CONTEXT.Process(
            target=_main, args=(path, *settings, function, arguments)
        )
        self._process.start()

    @property
    def pid(self):
        return self._process.pid

    @property
    def exit_code(self):
        """As of `subprocess`: negative for a signal, `None` while it runs."""
        return self._process.exitcode

    @property
    def output(self):
        return self._log.read_text(errors="replace")

    def send_signal(self, number):
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self.pid, number)

    def wait(self, timeout=DEADLINE_SECS):
        """Wait for the end; return exit code and output."""
        self._process.join(timeout)
        if self.exit_code is None:
            self.stop()
            raise AssertionError(f"No end after {timeout:.0f} s:\n{self.output}")
        return self.exit_code, self.output

    def has_ended_within(self, seconds):
        self._process.join(seconds)
        return self.exit_code is not None

    def wait_for(self, text, timeout=DEADLINE_SECS):
        """Wait until the process has printed a text."""
        wait_until(lambda: text in self.output, self, what=repr(text), timeout=timeout)

    def stop(self):
        """End the process if it runs, and forget what it printed."""
        self.send_signal(signal.SIGKILL)
        self._process.join()

    def __del__(self):
        self._log.unlink(missing_ok=True)


def python(*words, **options):
    """Start what `python words...` starts: `-m module ...`, `-c script ...` or a file."""
    environment = {"JAX_PLATFORMS": "cpu"} | options.pop("environment", {})
    words = [str(word) for word in words]
    return Process(_run_as_main, words, environment=environment, **options)


def _run_as_main(words):
    try:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<script>", "exec"), {"__name__": "__main__"})
        elif words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()


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


def _main(log, environment, terminal, stdout, limits, cache, function, arguments):
    """Run in the new process."""
    gc.freeze()  # what was imported stays: the collector need not look at it
    if terminal is None:
        _redirect(log, 1, 2)
    else:
        os.setsid()
        _redirect(terminal, 0, 1, 2)
    if stdout is not None:
        _redirect(stdout, 1)
    sys.stdout.reconfigure(line_buffering=True)
    logging.getLogger().handlers.clear()  # orbax configures it when imported
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of jobs in a background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    share_compiled_programs(cache)
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))
    try:
        function(*arguments)
    except KeyboardInterrupt:
        # As the interpreter does: threads end first, then the signal is passed on.
        traceback.print_exc()
        sys.stdout.flush()
        threading._shutdown()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _redirect(path, *descriptors):
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    for descriptor in descriptors:
        os.dup2(fd, descriptor)
    os.close(fd)


def share_compiled_programs(folder):
    """Keep every compiled program, however small, where other processes find it."""
    if folder is None:
        return
    import jax

    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
