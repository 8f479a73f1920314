"""Run something once a library gets loaded, without loading it.

`import kauldron` must stay cheap, yet some of our classes have to be known to jax
(pytree registration) or to flax (the `is_training_property=` keyword) as soon as the
user's own code imports them. `on_import` waits for that moment.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

_callbacks: dict[str, list[Callable[[], None]]] = {}
_lock = threading.RLock()


def on_import(module_name: str, callback: Callable[[], None]) -> None:
    """Call `callback()` once `module_name` is loaded: now, or right after its import.

    Args:
      module_name: Absolute dotted name, such as `"flax.linen"`.
      callback: Takes nothing. What it raises is raised by the import statement.
    """
    with _lock:
        if module_name not in sys.modules:
            _callbacks.setdefault(module_name, []).append(callback)
            if _FINDER not in sys.meta_path:
                sys.meta_path.insert(0, _FINDER)
            return
    callback()


class _CallbackLoader(importlib.abc.Loader):
    """Loads with the real loader, steps aside, then runs the callbacks."""

    def __init__(self, loader: importlib.abc.Loader):
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        with _lock:
            callbacks = _callbacks.pop(module.__name__, [])
        for callback in callbacks:
            callback()


class _CallbackFinder(importlib.abc.MetaPathFinder):
    """Answers only for the modules that callbacks wait for."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _callbacks:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _CallbackLoader(spec.loader)
                return spec
        return None


_FINDER = _CallbackFinder()
