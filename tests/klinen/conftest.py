"""Settings of these tests."""

import jax
import pytest

_OPTION = "jax_disable_most_optimizations"


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(request):
    """These are many small programs that run once: compiling well takes longest.

    A module that compares to the last bit what optimizations may change says
    `WITH_OPTIMIZATIONS = True`.
    """
    if getattr(request.module, "WITH_OPTIMIZATIONS", False):
        yield
        return
    _set_quick(True)
    yield
    _set_quick(False)


def _set_quick(is_on: bool) -> None:
    jax.config.update(_OPTION, is_on)
    # Else a test would mix programs compiled in both ways, which round differently.
    jax.clear_caches()
