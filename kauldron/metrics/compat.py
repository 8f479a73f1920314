"""Older module paths and where their names live now."""

import sys
import types

from kauldron.lazy_namespace import older_modules
from kauldron.metrics import averages, collecting_state, metric, state, wrappers


def module_alias(name: str, *modules: types.ModuleType) -> types.ModuleType:
    """Return an importable module `name` that has the public names of `modules`."""
    alias = types.ModuleType(name, "Older path of names that live elsewhere.")
    for module in modules:
        names = (name for name in vars(module) if not name.startswith("_"))
        vars(alias).update({name: vars(module)[name] for name in names})
    sys.modules[name] = alias
    return alias


base = module_alias("kauldron.metrics.base", metric, wrappers)
base_state = module_alias(
    "kauldron.metrics.base_state", state, averages, collecting_state
)
older_modules(
    {
        "kauldron.metrics.average_state": "kauldron.metrics.averages",
        "kauldron.metrics.norm": "kauldron.metrics.stats",
        "kauldron.metrics.roc_auc": "kauldron.metrics.classification",
        "kauldron.metrics.skip_if_missing": "kauldron.metrics.wrappers",
        "kauldron.metrics.tree_metrics": "kauldron.metrics.wrappers",
    }
)
