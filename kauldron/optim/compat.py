"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.optim",
    {
        "combine": "transforms",
        "ema_params": "transforms use_ema_params",
        "init_decay": "transforms",
        "path_masks": "masks",
        "parameter_average": "transforms",
        "transform": "transforms masks",
    },
)
