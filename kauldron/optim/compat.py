"""Older module paths, which pickles and saved configs may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    {
        "kauldron.optim.path_masks": "kauldron.optim.masks",
        "kauldron.optim.init_decay": "kauldron.optim.transforms",
        "kauldron.optim.parameter_average": "kauldron.optim.transforms",
    }
)
