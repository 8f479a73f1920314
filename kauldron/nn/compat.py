"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.nn",
    {
        "dropout": "layers",
        "identity": "layers",
        "einops_layers": "layers",
        "sequential": "layers",
        "flat_autoencoder": "models",
        "dummy_model": "models",
    },
)
