"""Older module paths and where their names live now."""

import sys
import types

from kauldron.metrics import (
    average_state,
    classification,
    collecting_state,
    metric,
    roc_auc,
    skip_if_missing,
    state,
    tree_metrics,
)


def module_alias(name: str, *modules: types.ModuleType) -> types.ModuleType:
    """An importable module `name` that has the public names of `modules`."""
    alias = types.ModuleType(name, "Older path of names that live elsewhere.")
    for module in modules:
        names = (name for name in vars(module) if not name.startswith("_"))
        vars(alias).update({name: vars(module)[name] for name in names})
    sys.modules[name] = alias
    return alias


base = module_alias("kauldron.metrics.base", metric, tree_metrics, skip_if_missing)
base_state = module_alias(
    "kauldron.metrics.base_state", state, average_state, collecting_state
)
classification.RocAuc = roc_auc.RocAuc  # type: ignore[attr-defined]
