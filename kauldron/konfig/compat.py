"""Module paths of the past that configs, pickles and other code may still name."""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

from kauldron import konfig
from kauldron.konfig.authoring import default_values, proxies, ref_functions
from kauldron.konfig.immutabledict import ImmutableDict
from kauldron.konfig.overrides import config_files
from kauldron.konfig.query import diff
from kauldron.konfig.resolution import problems
from kauldron.konfig.tree import configdict, history, placeholders, references

_MOVED = {
    "checking": problems,
    "configdict": configdict,
    "configdict_proxy": proxies,
    "diffing": diff,
    "module_configdict": config_files,
    "placeholders": placeholders,
    "ref_functions": ref_functions,
    "references": references,
    "set_events": history,
    "shipped_defaults": default_values,
}


def _immutable_dict(name: str) -> Any:
    if name != "ImmutableDict":
        raise AttributeError(f"module {immutabledict_lib.__name__!r} has no {name!r}.")
    warnings.warn(
        "Use kauldron.konfig.immutabledict instead of kauldron.konfig.immutabledict_lib.",
        DeprecationWarning,
        stacklevel=2,
    )
    return ImmutableDict


immutabledict_lib: Any = types.ModuleType("kauldron.konfig.immutabledict_lib")
immutabledict_lib.__getattr__ = _immutable_dict

for _name, _module in {**_MOVED, "immutabledict_lib": immutabledict_lib}.items():
    sys.modules[f"kauldron.konfig.{_name}"] = _module
    setattr(konfig, _name, _module)
