"""Settings of the whole suite."""

import os
import sys

# Tests are many small programs: the CPU backend, and no memory for a GPU that is there.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import pytest

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
