"""How JAX compiles the programs of tests: as for users, or as quickly as it can.

Most tests run a program once: compiling it well takes longer than it saves. Compiling
quickly leaves most optimizations out, and the newer of the two generators of code for
fused operations, which takes twice as long to make what is equally good. It also makes each
program in one piece: several pieces are compiled at the same time, but take more work.
"""

import contextlib
import functools

import pytest

# Folders whose tests are many small programs that run once: compiling them well would
# take longest. Everything that trains in earnest is compiled as it is for users.
QUICKLY_COMPILED = frozenset(
    {
        "ckpts",
        "cli",
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
    }
)
_is_quick = False
_QUICK_OPTIONS = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


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


@functools.cache
def _options():
    """The class of options that JAX makes for each program, and one with another default."""
    import jax
    from jaxlib import xla_client

    def is_known(name, value):
        try:
            jax.jit(lambda: 0, compiler_options={name: value})()
        except jax.errors.JaxRuntimeError:  # versions differ in what they know
            return False
        return True

    usual = xla_client.CompileOptions
    known = {k: v for k, v in _QUICK_OPTIONS.items() if is_known(k, v)}
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
