"""Settings of these tests."""

import jax
import pytest

_OPTION = "jax_disable_most_optimizations"


@pytest.fixture(scope="package", autouse=True)
def quick_compilation():
    """These are many small programs that run once: compiling well takes longest."""
    _set_quick(True)
    yield
    _set_quick(False)


@pytest.fixture(scope="module", autouse=True)
def good_compilation(request, quick_compilation):
    """A module that compares to the last bit what optimizations may change.

    It says `WITH_OPTIMIZATIONS = True`.
    """
    wanted = getattr(request.module, "WITH_OPTIMIZATIONS", False)
    if wanted:
        _set_quick(False)
    yield
    if wanted:
        _set_quick(True)


def _set_quick(is_on: bool) -> None:
    jax.config.update(_OPTION, is_on)
    # Else a test would mix programs compiled in both ways, which round differently.
    jax.clear_caches()
