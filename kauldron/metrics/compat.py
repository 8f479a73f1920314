"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.metrics",
    {
        "base": "metric wrappers",
        "base_state": "state averages collecting_state",
        "average_state": "averages",
        "norm": "stats",
        "roc_auc": "classification",
        "skip_if_missing": "wrappers",
        "tree_metrics": "wrappers",
    },
)
