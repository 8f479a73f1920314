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
    wanted = getattr(request.module, "WITH_OPTIMIZATIONS", False)
    jax.config.update(_OPTION, not wanted)
    yield
    jax.config.update(_OPTION, False)
