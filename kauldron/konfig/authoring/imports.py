"""`konfig.imports()` and `konfig.mock_modules()`: modules as proxies inside a block.

While at least one `imports()` block is open, `builtins.__import__` is a function that
looks whether the import statement belongs to a block: whether it is executed by the
thread and by the module (the same globals) that opened it. All other imports are left
to the real function.
"""

from __future__ import annotations

import builtins
import contextlib
import contextvars
import ctypes
import importlib
import sys
import threading
from collections.abc import Iterator, MutableMapping, Sequence
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

from kauldron.errors import raise_reworded
from kauldron.konfig.authoring.proxies import (
    KONFIG_NAMES,
    ConfigDictProxyObject,
    ModuleTable,
)

# ------------------------------------------------------------------------------------
# Which modules are not imported for real
# ------------------------------------------------------------------------------------

_LazyScope = tuple[tuple[str, ...], tuple[str, ...]]
_lazy_scope: contextvars.ContextVar[_LazyScope] = contextvars.ContextVar(
    "konfig_lazy_modules", default=((), ())
)


@contextlib.contextmanager
def set_lazy_imported_modules(
    lazy_import: Sequence[str] = ("*",), *, except_: Sequence[str] = ()
) -> Iterator[None]:
    """Choose which modules `konfig.imports()` does not import for real.

    Only the innermost scope counts. Also usable as a decorator.

    Args:
      lazy_import: Names of modules that are not imported; a name covers its submodules
        and `"*"` covers everything.
      except_: Names of modules that are imported nevertheless.

    Example:
      >>> from kauldron import konfig
      >>> with konfig.set_lazy_imported_modules(["a_missing_package"]):
      ...     with konfig.imports():
      ...         import a_missing_package
      >>> a_missing_package.build()
      <ConfigDict[a_missing_package.build()]>
    """
    for given in (lazy_import, except_):
        if isinstance(given, str):
            raise TypeError(f"Expected a list of module names, got the text {given!r}.")
    token = _lazy_scope.set((tuple(lazy_import), tuple(except_)))
    try:
        yield
    finally:
        _lazy_scope.reset(token)


def _is_lazy(module_name: str) -> bool:
    lazy, real = _lazy_scope.get()
    return not _covered(module_name, real) and _covered(module_name, lazy)


def _covered(module_name: str, names: tuple[str, ...]) -> bool:
    return any(
        name in ("*", module_name) or module_name.startswith(f"{name}.")
        for name in names
    )


# ------------------------------------------------------------------------------------
# The block
# ------------------------------------------------------------------------------------


def imports(*, lazy: bool = False) -> contextlib.AbstractContextManager[None]:
    """Let the import statements of the calling module bind proxies, inside a block.

    Calls on them build `ConfigDict`s instead of being executed.

    Args:
      lazy: Import nothing for real before `konfig.resolve`. Otherwise the real modules
        are imported too, so that a missing one is noticed here.

    Returns:
      The context manager.

    Example:
      >>> from kauldron import konfig
      >>> with konfig.imports():
      ...     import collections
      >>> cfg = collections.Counter([1, 1, 2])
      >>> cfg
      <ConfigDict[collections.Counter([1, 1, 2])]>
      >>> konfig.resolve(cfg)
      Counter({1: 2, 2: 1})
    """
    return _importing(sys._getframe(1).f_globals, lazy)


@contextlib.contextmanager
def _importing(module_globals: dict[str, Any], lazy: bool) -> Iterator[None]:
    block = _Block(module_globals)
    with contextlib.ExitStack() as stack:
        if lazy:
            stack.enter_context(set_lazy_imported_modules())
        token = _blocks.set((*_blocks.get(), block))
        stack.callback(_blocks.reset, token)
        stack.enter_context(_hook)
        yield


class _Block:
    """One open `imports()` block."""

    def __init__(self, module_globals: dict[str, Any]) -> None:
        self.globals = module_globals
        self.thread = threading.get_ident()
        self.table = ModuleTable()

    def import_(self, name: str, fromlist: Sequence[str] | None, level: int) -> Any:
        """Return what an import statement in this block gets."""
        if level > 0:
            dots = "." * level
            raise ValueError(
                f"Relative imports (`from {dots}{name} import ...`) do not work inside "
                "of konfig.imports(): write the full name of the module."
            )
        if fromlist and "*" in fromlist:
            raise ValueError(
                f"`from {name} import *` does not work inside konfig.imports(): "
                "import the module itself."
            )
        if fromlist:
            return SimpleNamespace(**{m: self.member(name, m) for m in fromlist})
        if not _is_lazy(name):
            _import_module(name)
        self.table.add(name)
        return self.table.proxy(name.partition(".")[0])

    def member(self, package: str, member: str) -> Any:
        """Return what `from package import member` binds."""
        if package in KONFIG_NAMES:
            return getattr(sys.modules["kauldron.konfig"], member)
        full_name = f"{package}.{member}"
        if _is_lazy(full_name) or _is_module(package, member):
            return self.table.proxy(full_name)
        return ConfigDictProxyObject(f"{package}:{member}")


def _is_module(package: str, member: str) -> bool:
    """Return whether `from package import member` imports a module."""
    parent = _import_module(package)
    full_name = f"{package}.{member}"
    try:
        found = getattr(parent, member)
    except AttributeError:
        _import_module(full_name)
        return True
    return isinstance(found, ModuleType) and full_name in sys.modules


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = (
            "\nIf this process never resolves that part of the config, import the "
            "module in a separate block: `with konfig.imports(lazy=True):`."
        )
        raise_reworded(error, f"{error}{hint}")


# ------------------------------------------------------------------------------------
# The hook
# ------------------------------------------------------------------------------------

_blocks: contextvars.ContextVar[tuple[_Block, ...]] = contextvars.ContextVar(
    "konfig_imports_blocks", default=()
)


class _ImportHook:
    """Replaces `builtins.__import__` while blocks are open, in any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.before: Any = None
        self.installed: Any = None

    def __enter__(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.before = builtins.__import__
                self.installed = _import_function(self.before)
                builtins.__import__ = self.installed

    def __exit__(self, *error: Any) -> None:
        with self.lock:
            self.users -= 1
            # Somebody else may have wrapped it meanwhile; then it stays, harmlessly.
            if self.users == 0 and builtins.__import__ is self.installed:
                builtins.__import__ = self.before


def _import_function(real: Any) -> Any:
    """Return an `__import__` that serves open blocks, or calls the real one."""

    def import_(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        blocks = _blocks.get()
        if blocks and globals is not None:
            block = blocks[-1]
            if block.globals is globals and block.thread == threading.get_ident():
                return block.import_(name, fromlist, level)
        return real(name, globals, locals, fromlist, level)

    return import_


_hook = _ImportHook()


class mock_modules:
    """Inside the block, module variables of the caller build configs.

    For notebooks, where modules are imported already. Every variable among the
    caller's globals and locals that is bound to a module is replaced by a proxy, and
    put back on exit. `konfig` itself stays real.

    Example:
      >>> import fractions
      >>> from kauldron import konfig
      >>> with konfig.mock_modules():
      ...     cfg = fractions.Fraction(1, 3)
      >>> cfg
      <ConfigDict[fractions.Fraction(1, 3)]>
      >>> fractions.Fraction(1, 3)
      Fraction(1, 3)
    """

    def __init__(self) -> None:
        self._frame: FrameType | None = sys._getframe(1)
        self._replaced: list[tuple[bool, str, ModuleType, Any]] = []

    def __enter__(self) -> None:
        frame = self._frame
        if frame is None:
            raise RuntimeError("This mock_modules() was used already: make a new one.")
        table = ModuleTable()
        for is_local, scope in _scopes(frame):
            for name, value in list(scope.items()):
                if _is_mockable(name, value):
                    proxy = table.proxy(value.__name__)
                    scope[name] = proxy
                    self._replaced.append((is_local, name, value, proxy))
        _write_back(frame)

    def __exit__(self, *error: Any) -> None:
        frame, self._frame = self._frame, None
        assert frame is not None
        scopes = dict(_scopes(frame))
        for is_local, name, module, proxy in self._replaced:
            scope = scopes[is_local]
            if scope.get(name) is proxy:  # else it was bound to something new
                scope[name] = module
        _write_back(frame)

    def __call__(self, function: Any) -> Any:
        raise TypeError(
            "konfig.mock_modules() is not a decorator: it could not see the variables "
            "of the function. Write `with konfig.mock_modules():` inside it."
        )


def _scopes(frame: FrameType) -> list[tuple[bool, MutableMapping[str, Any]]]:
    """Return the globals (False) and, inside a function, the locals (True)."""
    scopes: list[tuple[bool, MutableMapping[str, Any]]] = [(False, frame.f_globals)]
    # Reading f_locals brings the dict up to date; before Python 3.13 it is a copy.
    local_variables = frame.f_locals
    if local_variables is not frame.f_globals:
        scopes.append((True, local_variables))
    return scopes


def _is_mockable(variable: str, value: Any) -> bool:
    if not isinstance(value, ModuleType) or variable.startswith("__"):
        return False
    if value is sys.modules.get("kauldron.konfig"):
        return False
    name = getattr(value, "__name__", None)
    return isinstance(name, str) and all(name.split(".")) and name != "__main__"


def _write_back(frame: FrameType) -> None:
    """Make writes to `f_locals` take effect."""
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
