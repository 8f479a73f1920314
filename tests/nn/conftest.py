"""Small models: compiling them takes longer than running them."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def _compiled_without_optimizations():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
