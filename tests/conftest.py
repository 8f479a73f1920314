"""Settings of the whole suite."""

import gc
import os
import signal
import sys

from tests import processes

# Tests are many small programs: the CPU backend, and no memory for a GPU that is there.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Threads of numpy's products of matrices would wait for work that is too small for them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Many tests compile the same programs. Each is compiled once in a session, for both
# workers and for the processes that tests start.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(processes.session_folder() / "programs")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import hypothesis
import pytest

from tests import compilation

# A shell makes jobs that it puts into the background ignore Ctrl-C, and `nohup` makes
# them ignore the end of the terminal: their tests would too, and what these start.
for _ignored, _default in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
}.items():
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, _default)

hypothesis.settings.register_profile(
    "kauldron",
    deadline=None,
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("kauldron")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Import the tests quickly.

    What some of them compute for their parameters is compiled quickly, and the garbage
    collector need not look at what was imported: it stays.
    """
    gc.disable()
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
    try:
        return (yield)
    finally:
        del os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"]
        if "jax" in sys.modules:
            import jax

            jax.config.update("jax_disable_most_optimizations", False)
            jax.clear_caches()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    config.pluginmanager.register(compilation)  # for doctests too
    if config.option.basetemp is None:  # workers are given theirs
        # By number: a pytest that a test starts must not clear the folder of this one.
        folder = processes.session_folder() / f"tmp-{os.getpid()}"
        config.option.basetemp = str(folder)


@pytest.fixture(autouse=True)
def _restore_process():
    """Config files make their folder importable, and commands let Ctrl-C end the process.

    Neither is for the next test.
    """
    path, on_ctrl_c = list(sys.path), signal.getsignal(signal.SIGINT)
    yield
    sys.path[:] = path
    signal.signal(signal.SIGINT, on_ctrl_c)


@pytest.fixture(autouse=True)
def _quick_collection(request):
    """Tests that collect garbage need not look through what earlier tests have left."""
    if hasattr(request.module, "gc"):
        gc.freeze()


def pytest_sessionfinish():
    gc.freeze()  # pytest collects garbage five times when it ends


@pytest.fixture
def fast_python(monkeypatch):
    """Programs that start by `sys.executable` need not wait for their imports.

    They are also compiled quickly. Not for tests of how programs start, of what they
    import, or of numbers that optimizations may change.
    """
    monkeypatch.setattr(sys, "executable", processes.fast_python())
    for name, value in compilation.quick_environment().items():
        monkeypatch.setenv(name, value)
