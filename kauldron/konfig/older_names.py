"""Names of the past that other code may still import."""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

from kauldron.konfig.immutabledict import ImmutableDict

immutabledict_lib: Any = types.ModuleType("kauldron.konfig.immutabledict_lib")


def _get(name: str) -> Any:
    if name != "ImmutableDict":
        raise AttributeError(f"module {immutabledict_lib.__name__!r} has no {name!r}.")
    warnings.warn(
        "Use kauldron.konfig.immutabledict instead of kauldron.konfig.immutabledict_lib.",
        DeprecationWarning,
        stacklevel=2,
    )
    return ImmutableDict


immutabledict_lib.__getattr__ = _get
sys.modules[immutabledict_lib.__name__] = immutabledict_lib
