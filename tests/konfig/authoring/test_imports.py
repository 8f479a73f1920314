"""`konfig.imports()` and `set_lazy_imported_modules`: import statements bind proxies."""

import asyncio
import builtins
import subprocess
import sys
import textwrap
import threading
import types

import pytest

from kauldron import konfig
from kauldron.konfig.authoring.proxies import ConfigDictProxyObject


def run(source: str, **variables) -> types.SimpleNamespace:
    """Executes source as a module of its own and returns its variables."""
    namespace = {"__name__": "a_config", "konfig": konfig, **variables}
    exec(textwrap.dedent(source), namespace)
    return types.SimpleNamespace(**namespace)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package on disk: `konfig_pkg.sub.leaf`, a class, a broken module."""
    root = tmp_path / "konfig_pkg"
    (root / "sub").mkdir(parents=True)
    (root / "__init__.py").write_text("class Thing:\n    pass\n\nVALUE = 3\n")
    (root / "sub" / "__init__.py").write_text("")
    (root / "sub" / "leaf.py").write_text("def make(n):\n    return n\n")
    (root / "broken.py").write_text("import a_module_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "konfig_pkg"
    for name in [n for n in sys.modules if n.partition(".")[0] == "konfig_pkg"]:
        del sys.modules[name]


# ------------------------------------------------------------------------------------
# What is bound
# ------------------------------------------------------------------------------------


def test_each_form_of_import_names_the_module_it_says(package):
    names = run(
        """
        with konfig.imports():
            import konfig_pkg.sub.leaf
            import konfig_pkg.sub.leaf as leaf
            from konfig_pkg.sub import leaf as leaf2
            from konfig_pkg import sub
        by_root = konfig_pkg.sub.leaf.make(1)
        other = konfig_pkg.other.X()
        as_name = leaf.make(1)
        from_name = leaf2.make(1)
        package = sub.thing
        """
    )
    assert names.by_root.__qualname__ == "konfig_pkg.sub.leaf:make"
    assert names.other.__qualname__ == "konfig_pkg:other.X"
    assert names.as_name.__qualname__ == "konfig_pkg.sub.leaf:make"
    assert names.from_name.__qualname__ == "konfig_pkg.sub.leaf:make"
    assert names.package.qualname == "konfig_pkg.sub:thing"


def test_the_same_module_is_one_proxy_in_a_block(package):
    names = run(
        """
        with konfig.imports():
            import konfig_pkg.sub as a
            from konfig_pkg import sub as b
            import konfig_pkg
            import konfig_pkg as c
        """
    )
    assert names.a is names.b
    assert names.konfig_pkg is names.c


def test_a_symbol_can_be_imported_by_name(package):
    names = run(
        """
        with konfig.imports():
            from konfig_pkg import Thing, VALUE
        cfg = konfig.ConfigDict({"thing": Thing(), "value": VALUE})
        """
    )
    assert names.cfg.thing.__qualname__ == "konfig_pkg:Thing"
    resolved = konfig.resolve(names.cfg)
    assert type(resolved.thing).__name__ == "Thing"
    assert resolved.value == 3


def test_a_lazily_imported_symbol_is_told_from_a_module_when_resolved(package):
    names = run(
        """
        with konfig.imports(lazy=True):
            from konfig_pkg import Thing
            from konfig_pkg.sub import leaf
        cfg = konfig.ConfigDict({"a": Thing(), "b": Thing, "c": leaf.make(2)})
        """
    )
    assert "konfig_pkg" not in sys.modules
    resolved = konfig.resolve(names.cfg)
    assert type(resolved.a) is resolved.b
    assert resolved.c == 2


def test_names_do_not_depend_on_what_other_files_imported():
    first = run(
        """
        with konfig.imports():
            import jax
        cfg = jax.numpy.zeros(3)
        const = konfig.ConfigDict({"f": jax.numpy.zeros})
        """
    )
    run("with konfig.imports():\n    import jax.numpy as jnp")
    second = run(
        """
        with konfig.imports():
            import jax
        cfg = jax.numpy.zeros(3)
        """
    )
    assert first.cfg.__qualname__ == second.cfg.__qualname__ == "jax:numpy.zeros"
    assert first.const.f.__const__ == "jax:numpy.zeros"


def test_konfig_is_real_inside_of_a_block():
    names = run(
        """
        with konfig.imports():
            from kauldron import konfig as same
            from kauldron.konfig import ConfigDict, ref_fn
            from kauldron import kd
        cfg = konfig.ConfigDict({"x": kd.konfig.placeholder(int)})
        """
    )
    assert names.same is konfig
    assert names.ConfigDict is konfig.ConfigDict
    assert names.ref_fn is konfig.ref_fn
    assert names.cfg.x is None
    names.cfg.x = 3
    assert names.cfg.x == 3


# ------------------------------------------------------------------------------------
# What fails
# ------------------------------------------------------------------------------------


def test_a_missing_module_fails_here_with_a_hint():
    with pytest.raises(ModuleNotFoundError, match=r"(?s)no_such_pkg.*lazy=True") as e:
        run("with konfig.imports():\n    import no_such_pkg.sub")
    assert e.value.name == "no_such_pkg"
    with pytest.raises(ImportError, match="lazy=True"):
        run("with konfig.imports():\n    from json import no_such_thing")


def test_a_missing_module_fails_in_a_lazy_block_only_when_resolved():
    names = run(
        "with konfig.imports(lazy=True):\n    import no_such_pkg\n"
        "cfg = konfig.ConfigDict({'a': [no_such_pkg.f(1)]})"
    )
    with pytest.raises(ModuleNotFoundError, match=r"(?s)cfg\.a\[0\].*no_such_pkg"):
        konfig.resolve(names.cfg)


def test_a_module_that_is_broken_inside_says_what_is_missing(package):
    names = run(
        "with konfig.imports(lazy=True):\n    from konfig_pkg import broken\n"
        "cfg = broken.f()"
    )
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_missing"):
        konfig.resolve(names.cfg)


def test_relative_and_star_imports_are_refused():
    with pytest.raises(ValueError, match=r"from \.sibling"):
        run(
            "with konfig.imports():\n    from .sibling import x",
            __package__="some.package",
        )
    with pytest.raises(ValueError, match=r"from json import \*"):
        run("with konfig.imports():\n    from json import *")


# ------------------------------------------------------------------------------------
# Where the block reaches
# ------------------------------------------------------------------------------------


def test_the_import_function_is_restored_also_after_an_error():
    before = builtins.__import__
    with pytest.raises(RuntimeError):
        run("with konfig.imports():\n    raise RuntimeError")
    assert builtins.__import__ is before
    import colorsys

    assert isinstance(colorsys, types.ModuleType)


def test_other_modules_called_inside_of_a_block_import_for_real():
    other = run("def load():\n    import colorsys\n    return colorsys")
    names = run(
        "with konfig.imports():\n    got = load()\n    import colorsys", load=other.load
    )
    assert isinstance(names.got, types.ModuleType)
    assert isinstance(names.colorsys, ConfigDictProxyObject)


def test_a_thread_that_imports_meanwhile_gets_real_modules():
    namespace = {"konfig": konfig, "found": [], "threading": threading}
    source = """
    inside, done = threading.Event(), threading.Event()

    def work():
        inside.wait(10)
        import colorsys
        found.append(colorsys)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    with konfig.imports():
        import colorsys as mine
        inside.set()
        assert done.wait(10)
    thread.join()
    """
    exec(textwrap.dedent(source), namespace)  # both use the same globals
    assert isinstance(namespace["found"][0], types.ModuleType)
    assert isinstance(namespace["mine"], ConfigDictProxyObject)


def test_two_threads_may_be_inside_of_blocks_at_once():
    barrier = threading.Barrier(2, timeout=10)
    before = builtins.__import__
    results = {}

    def work(name):
        results[name] = run(
            f"with konfig.imports():\n    wait()\n    import {name} as m\n    wait()\n",
            wait=barrier.wait,
        ).m

    threads = [threading.Thread(target=work, args=(n,)) for n in ("json", "colorsys")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: proxy.qualname for name, proxy in results.items()} == {
        "json": "json",
        "colorsys": "colorsys",
    }
    assert builtins.__import__ is before


def test_blocks_nest():
    names = run(
        """
        with konfig.imports():
            import json as a
            with konfig.imports(lazy=True):
                import no_such_pkg as b
            import colorsys as c
        import json as d
        """
    )
    assert names.b.qualname == "no_such_pkg"
    assert names.c.qualname == "colorsys"
    assert isinstance(names.d, types.ModuleType)


def _load():
    import colorsys

    assert isinstance(colorsys, types.ModuleType)


def test_somebody_else_may_wrap_the_import_function_meanwhile():
    before = builtins.__import__
    block = konfig.imports()
    block.__enter__()
    inner = builtins.__import__
    builtins.__import__ = lambda *args, **kwargs: inner(*args, **kwargs)
    try:
        block.__exit__(None, None, None)
        import colorsys

        assert isinstance(colorsys, types.ModuleType)
        names = run("with konfig.imports():\n    import json\n    load()", load=_load)
        assert isinstance(names.json, ConfigDictProxyObject)
    finally:
        builtins.__import__ = before


# ------------------------------------------------------------------------------------
# Lazy modules
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lazy, except_, module, is_lazy",
    [
        (("*",), (), "no_pkg", True),
        (["no_pkg"], (), "no_pkg.sub", True),
        (["no_pkg.data"], (), "no_pkg.data.tf", True),
        (["no_pkg.data"], (), "no_pkg.database", False),
        (["*"], ["no_pkg"], "no_pkg.sub", False),
        ([], (), "no_pkg", False),
    ],
)
def test_which_modules_are_lazy(lazy, except_, module, is_lazy):
    source = f"with konfig.imports():\n    import {module} as m"
    with konfig.set_lazy_imported_modules(lazy, except_=except_):
        if is_lazy:
            assert run(source).m.qualname == module
        else:
            with pytest.raises(ModuleNotFoundError):
                run(source)


def test_only_the_innermost_scope_counts():
    with konfig.set_lazy_imported_modules(["no_pkg"]):
        with konfig.set_lazy_imported_modules(["other"]), pytest.raises(ImportError):
            run("with konfig.imports():\n    import no_pkg")
        assert run("with konfig.imports():\n    import no_pkg").no_pkg


def test_the_scope_is_a_decorator_too():
    @konfig.set_lazy_imported_modules(["no_pkg"])
    def load():
        return run("with konfig.imports():\n    import no_pkg").no_pkg

    assert load().qualname == "no_pkg"
    assert load().qualname == "no_pkg"
    with pytest.raises(ImportError):
        run("with konfig.imports():\n    import no_pkg")


def test_a_text_instead_of_a_list_is_refused():
    with (
        pytest.raises(TypeError, match="list"),
        konfig.set_lazy_imported_modules("no_pkg"),
    ):
        pass


def test_scopes_belong_to_their_task():
    async def lazy():
        with konfig.set_lazy_imported_modules(["no_pkg"]):
            await asyncio.sleep(0)
            return run("with konfig.imports():\n    import no_pkg").no_pkg

    async def real():
        await asyncio.sleep(0)
        with pytest.raises(ImportError):
            run("with konfig.imports():\n    import no_pkg")

    async def both():
        return await asyncio.gather(lazy(), real())

    assert asyncio.run(both())[0].qualname == "no_pkg"


# ------------------------------------------------------------------------------------
# A process of its own
# ------------------------------------------------------------------------------------


def test_konfig_and_its_default_values_import_nothing_heavy():
    script = (
        "import sys\nfrom kauldron import konfig\n"
        "with konfig.imports(lazy=True):\n    from kauldron import kd\n"
        "kd.train.Trainer.eval_only()\n"
        "bad = {'jax', 'numpy', 'flax', 'tensorflow', 'ml_collections.config_flags',"
        " 'kauldron.kd', 'kauldron.train'}\n"
        "assert not bad & set(sys.modules), bad & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
