"""Older module paths, which pickles, saved configs and other code may name."""

from __future__ import annotations

import warnings
from typing import Any

from kauldron import immutabledict
from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.konfig",
    {
        "checking": "resolution.problems",
        "configdict": "tree.configdict",
        "configdict_proxy": "authoring.proxies",
        "diffing": "query.diff",
        "immutabledict": "kauldron.immutabledict",
        "immutabledict_lib": "compat",
        "module_configdict": "overrides.config_files",
        "placeholders": "tree.placeholders",
        "ref_functions": "authoring.ref_functions",
        "references": "tree.references",
        "set_events": "tree.history",
        "shipped_defaults": "authoring.default_values",
    },
)


def __getattr__(name: str) -> Any:
    if name != "ImmutableDict":  # the one name of `immutabledict_lib`
        raise AttributeError(name)
    warnings.warn(
        "Use kauldron.konfig.immutabledict instead of kauldron.konfig.immutabledict_lib.",
        DeprecationWarning,
        stacklevel=3,
    )
    return immutabledict.ImmutableDict
