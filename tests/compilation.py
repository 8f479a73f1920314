"""How JAX compiles the programs of tests: as for users, or as quickly as it can.

Most tests run a program once: compiling it well takes longer than it saves. Compiling
quickly leaves most optimizations out, and the newer of the two generators of code for
fused operations, which takes twice as long to make what is equally good. It also makes each
program in one piece: several pieces are compiled at the same time, but take more work.
"""

import contextlib
import functools
import json
import os

import pytest

# Folders whose tests are many small programs that run once: compiling them well would
# take longest. Everything that trains in earnest is compiled as it is for users.
QUICKLY_COMPILED = frozenset(
    {
        "ckpts",
        "cli",
        "data",
        "contrib",
        "kxm",
        "older_configs",
        "docs",
        "evals",
        "export",
        "klinen",
        "konfig",
        "kontext",
        "ktyping",
        "losses",
        "metrics",
        "nn",
        "optim",
        "random",
        "saved",
        "summaries",
        "train",
    }
)
_is_quick = False
_QUICK_OPTIONS = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
_KNOWN_OPTIONS = "KAULDRON_TEST_QUICK_OPTIONS"  # for forked processes


@pytest.fixture(scope="module", autouse=True)
def _compilation(request):
    """Compile quickly where that is enough: in examples of docstrings, too.

    A module that compares to the last bit what optimizations may change says
    `WITH_OPTIMIZATIONS = True`; one that needs them less than its folder, `False`.
    """
    root, folder, *_ = request.path.relative_to(request.config.rootpath).parts
    is_optimized = root == "tests" and folder not in QUICKLY_COMPILED
    if root == "tests":
        is_optimized = getattr(request.module, "WITH_OPTIMIZATIONS", is_optimized)
    compile_quickly(not is_optimized)


@contextlib.contextmanager
def as_for_users():
    """Compile a part of a quickly compiled module with all optimizations."""
    before = _is_quick
    compile_quickly(False)
    try:
        yield
    finally:
        compile_quickly(before)


def compile_quickly(is_quick):
    """Compile what comes quickly, or as for users."""
    global _is_quick
    if is_quick == _is_quick:
        return
    import jax
    from jaxlib import xla_client

    usual, quick = _options()
    jax.config.update("jax_disable_most_optimizations", is_quick)
    xla_client.CompileOptions = quick if is_quick else usual
    # Programs compiled in both ways round differently. This number is part of what JAX
    # knows them by: tests never mix them, and none is compiled again.
    jax.config.update("jax_xla_profile_version", int(is_quick))
    _is_quick = is_quick


def quick_environment():
    """Return the variables of a forked process that compiles quickly."""
    return {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
        _KNOWN_OPTIONS: json.dumps(_known_options()),
    }


def compile_as_the_environment_says():
    """Compile quickly where the variables say so: they share programs with tests."""
    if _KNOWN_OPTIONS in os.environ:
        compile_quickly(True)


@functools.cache
def _options():
    """The class of options that JAX makes for each program, and one with another default."""
    from jaxlib import xla_client

    usual = xla_client.CompileOptions
    known = _known_options()
    overrides = usual.env_option_overrides

    class Options(usual):
        def __init__(self):
            super().__init__()
            self.env_option_overrides = []

        @property
        def env_option_overrides(self):
            return overrides.__get__(self)

        @env_option_overrides.setter
        def env_option_overrides(self, value):
            overrides.__set__(self, list({**known, **dict(value)}.items()))

    return usual, Options


@functools.cache
def _known_options():
    """Options that this version of XLA knows; asking it starts a backend."""
    if _KNOWN_OPTIONS in os.environ:
        return json.loads(os.environ[_KNOWN_OPTIONS])
    import jax

    def is_known(name, value):
        try:
            jax.jit(lambda: 0, compiler_options={name: value})()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {k: v for k, v in _QUICK_OPTIONS.items() if is_known(k, v)}
