"""Older module paths, which pickles and saved configs may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    {
        "kauldron.nn.dropout": "kauldron.nn.layers",
        "kauldron.nn.identity": "kauldron.nn.layers",
        "kauldron.nn.einops_layers": "kauldron.nn.layers",
        "kauldron.nn.sequential": "kauldron.nn.layers",
        "kauldron.nn.flat_autoencoder": "kauldron.nn.models",
        "kauldron.nn.dummy_model": "kauldron.nn.models",
    }
)
