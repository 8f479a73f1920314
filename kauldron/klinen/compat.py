"""Older module paths, which pickles of models name."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

_MOVED = {
    "bound_class": "bound",
    "captured": "intermediates",
    "coded_leaves": "variables",
    "converting": "layers",
    "packed_modules": "definitions",
    "pytree_nodes": "pytree",
    "root": "view",
}


def _older_module(name: str, new_name: str) -> types.ModuleType:
    """Return a module that looks its names up in another one, once they are needed."""
    module = types.ModuleType(name, f"Older path of `{new_name}`.")

    def get(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(importlib.import_module(new_name), attribute)

    vars(module)["__getattr__"] = get
    return module


for _old, _new in _MOVED.items():
    _name = f"kauldron.klinen.{_old}"
    sys.modules[_name] = _older_module(_name, f"kauldron.klinen.{_new}")
