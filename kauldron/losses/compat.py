"""Older module paths, which pickles and saved configs may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    {
        "kauldron.losses.loss": "kauldron.losses.base",
        "kauldron.losses.all_reduce_mean": "kauldron.metrics.averages",
    }
)
