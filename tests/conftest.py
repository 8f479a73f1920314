"""Settings of the whole suite."""

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile

# Tests are many small programs: the CPU backend, and no memory for a GPU that is there.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Many tests compile the same programs. Each is compiled once in a session, for both
# workers and for the processes that tests start.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _programs = tempfile.mkdtemp(prefix="kauldron-programs-")
    atexit.register(shutil.rmtree, _programs, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _programs
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import hypothesis
import pytest

from tests import compilation

# A shell makes jobs that it puts into the background ignore Ctrl-C, and their tests too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(
    "kauldron",
    deadline=None,
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("kauldron")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Spare the garbage collector what was imported: it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_configure(config):
    config.pluginmanager.register(compilation)  # for doctests too


@pytest.fixture(autouse=True)
def _restore_import_path():
    """Config files make their folder importable: not for the next test."""
    before = list(sys.path)
    yield
    sys.path[:] = before
