"""A server that has imported everything, and forks processes that start at once.

    python -m tests.fork_server OWNER DESCRIPTOR [LIBRARY...]

A new Python that imports jax costs about three seconds of a processor. The server pays
for that once in a session of tests, and has no backend, no threads and no devices: what it
forks can choose its own number of devices, receives real signals, and ends with real exit
codes. It ends with the process `OWNER`.

Clients (`tests.processes`, `tests.forked_python`) connect to the socket that the server
inherits as `DESCRIPTOR`. They send a request with their standard descriptors, and are told
the number of the process and, at last, its exit code. A client that hangs up takes the
process along.
"""

import atexit
import contextlib
import gc
import importlib
import logging
import marshal
import os
import pathlib
import pickle
import resource
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import types

from tests import compilation

_PRELOADED = [
    "jax",
    "jaxlib.mlir.dialects.builtin",
    "jaxlib.mlir.dialects.mhlo",
    "flax.linen",
    "optax",
    "optuna",
    "orbax.checkpoint",
    "sklearn.datasets",
    "starlette.applications",
    "tensorboardX",
    "uvicorn",
    "PIL.Image",
    "kauldron.kd",
    "kauldron.ckpts.orbax_io",
    "kauldron.cli.commands.check",
    "kauldron.cli.commands.launch",
    "kauldron.cli.commands.stack",
    "kauldron.cli.loading",
    "kauldron.cli.main",
    "kauldron.data.checkpointing",
    "kauldron.data.engine.workers",
    "kauldron.data.in_memory",
    "kauldron.data.py.sources",
    "kauldron.evals.evaluator",
    "kauldron.kxm",
    "kauldron.kxm.command",
    "kauldron.kxm.config_provider",
    "kauldron.kxm.engines.display",
    "kauldron.kxm.engines.stacked",
    "kauldron.kxm.engines.study",
    "kauldron.kxm.handle",
    "kauldron.kxm.launching",
    "kauldron.kxm.runner",
    "kauldron.metrics.stats",
    "kauldron.nn.layers",
    "kauldron.train.stacked.plan",
    "tests.faults.experiments",
]
_HUNG_UP = select.POLLHUP | select.POLLRDHUP


def main(owner, descriptor, *libraries):
    # What a shell makes its jobs in the background ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for name in [name for name in os.environ if name.startswith("JAX_")]:
        del os.environ[name]  # each process configures jax itself
    for name in libraries or _PRELOADED:
        with contextlib.suppress(ImportError):  # some are extras
            importlib.import_module(name)
    logging.getLogger().handlers.clear()  # orbax configures it when imported
    gc.collect()
    gc.freeze()  # what was imported stays: the collector need not look at it
    _Server(int(owner), int(descriptor)).serve()


class _Server:
    """Forks a process for each connection."""

    def __init__(self, owner, descriptor):
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self.path = [entry for entry in sys.path[1:] if entry not in given]
        self.listener = socket.socket(fileno=descriptor)
        self.owner = os.pidfd_open(owner)
        self.connections = {}  # from descriptors of processes
        self.pids = {}  # from descriptors of connections
        self.poll = select.poll()
        self.poll.register(self.owner, select.POLLIN)
        self.poll.register(self.listener, select.POLLIN)

    def serve(self):
        while True:
            for descriptor, _ in self.poll.poll():
                if descriptor == self.owner:
                    for connection in list(self.pids):
                        self.kill(connection)
                    return
                if descriptor == self.listener.fileno():
                    self.start()
                elif descriptor in self.connections:
                    self.conclude(descriptor)
                elif descriptor in self.pids:
                    self.kill(descriptor)

    def start(self):
        connection, _ = self.listener.accept()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            self.listener.close()
            for descriptor in (self.owner, *self.connections, *self.pids):
                os.close(descriptor)
            _run(connection, self.path)
        process = os.pidfd_open(pid)
        self.connections[process] = connection, pid
        self.pids[connection.fileno()] = pid
        self.poll.register(process, select.POLLIN)
        self.poll.register(connection, _HUNG_UP)
        with contextlib.suppress(OSError):
            connection.sendall(struct.pack("i", pid))

    def conclude(self, descriptor):
        """Tell the client how its process ended."""
        connection, pid = self.connections.pop(descriptor)
        self.poll.unregister(descriptor)
        os.close(descriptor)
        if self.pids.pop(connection.fileno(), None):
            self.poll.unregister(connection)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):
            connection.sendall(struct.pack("i", code))
        connection.close()

    def kill(self, descriptor):
        """End the process of a client that is gone, and what it started."""
        pid = self.pids.pop(descriptor)
        self.poll.unregister(descriptor)
        for send in (os.kill, os.killpg):
            with contextlib.suppress(OSError):
                send(pid, signal.SIGKILL)


#
# In the new process
#


def _run(connection, path):
    """Do what the client asks for, and end as the interpreter does."""
    code = 1
    try:
        request = _receive(connection)
        connection.close()
        _prepare(request)
        sys.executable = request["python"]
        if "call" in request:
            sys.path[:] = request["path"]
            function, arguments = pickle.loads(request["call"])
            code = _exit_code(lambda: function(*arguments))
        else:
            path = request.get("path") or _module_path(path)
            code = _exit_code(lambda: _run_as_main(request["words"], path))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _receive(connection):
    """Take the standard descriptors of the client, and read what it asks for."""
    size = struct.calcsize("q")
    header, descriptors, _, _ = socket.recv_fds(connection, size, 3)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    with connection.makefile("rb") as stream:
        return marshal.loads(stream.read(struct.unpack("q", header)[0]))


def _prepare(request):
    """Set the process up as the client wants it."""
    os.environ.clear()
    os.environ.update(request["environment"])
    if "KXM_LAUNCHER_PID" in os.environ:  # what runners see as their parent
        os.environ["KXM_LAUNCHER_PID"] = str(os.getppid())
    os.chdir(request["folder"])
    if request.get("terminal"):
        _redirect(request["terminal"], 0, 1, 2)
    if request.get("stdout"):
        _redirect(request["stdout"], 1)
    is_watched = "path" in request or os.isatty(1)
    sys.stdout.reconfigure(line_buffering=is_watched)
    for number in request.get("ignored", ()):
        signal.signal(number, signal.SIG_IGN)
    _configure_jax(os.environ)
    compilation.compile_as_the_environment_says()
    if request.get("cache"):
        _configure_jax(
            {
                "JAX_COMPILATION_CACHE_DIR": request["cache"],
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        )
    for kind, limit in request.get("limits", {}).items():
        resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))


def _redirect(path, *descriptors):
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    for descriptor in descriptors:
        os.dup2(fd, descriptor)
    os.close(fd)


def _configure_jax(environment):
    """Apply the settings that jax reads from the environment when it is imported."""
    import jax

    for name, text in environment.items():
        setting = name.lower()
        if not name.startswith("JAX_") or setting not in jax.config.values:
            continue
        before = jax.config.values[setting]
        value = text
        if isinstance(before, bool):
            value = text.lower() in ("1", "true", "yes", "y", "t", "on")
        elif isinstance(before, int | float):
            value = type(before)(text)
        jax.config.update(setting, value)


def _module_path(path):
    """Where a program looks for modules that was started with nothing but its words."""
    for name in list(sys.modules):  # it may have a folder of this name itself
        if name.partition(".")[0] == "tests":
            del sys.modules[name]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    importlib.invalidate_caches()
    return [*filter(None, given), *path]


def _run_as_main(words, path):
    """Do what `python words...` does."""
    sys.path[:] = ["", *path]
    if words[0] == "-P":
        sys.path[:] = path
        words = words[1:]
    if words[0] == "-m":
        if sys.path[0] == "":
            sys.path[0] = os.getcwd()
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    main_module = sys.modules["__main__"] = types.ModuleType("__main__")
    if words[0] == "-c":
        source, file = words[1], "<string>"
        sys.argv = ["-c", *words[2:]]
    else:
        source, file = pathlib.Path(words[0]).read_bytes(), words[0]
        if sys.path[0] == "":
            sys.path[0] = os.path.dirname(os.path.abspath(file))
        sys.argv = words
        main_module.__file__ = file
    exec(compile(source, file, "exec", dont_inherit=True), vars(main_module))


def _exit_code(work):
    """Call something; return with which code the interpreter would exit."""
    code = 0
    try:
        work()
    except SystemExit as error:
        code = error.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except KeyboardInterrupt as error:
        # Threads end first, then the signal is passed on.
        _show(error)
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:
        _show(error)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return (code or 0) & 0xFF


def _show(error):
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    sys.excepthook(type(error), error.with_traceback(frames), frames)


if __name__ == "__main__":
    main(*sys.argv[1:])
