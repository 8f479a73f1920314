"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.optim",
    {
        "path_masks": "masks",
        "init_decay": "transforms",
        "parameter_average": "transforms",
    },
)
