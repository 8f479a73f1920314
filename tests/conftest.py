"""Settings of the whole suite."""

import os
import signal
import sys

# Tests are many small programs: the CPU backend, and no memory for a GPU that is there.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import pytest

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


@pytest.fixture(autouse=True)
def _restore_import_path():
    """Config files make their folder importable: not for the next test."""
    before = list(sys.path)
    yield
    sys.path[:] = before
