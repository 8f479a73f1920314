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
        "kauldron.modules.knn_types": "protocols",
        "kauldron.modules.misc": "layers models",
        "kauldron.modules.models": "models layers",
        "kauldron.modules.adapter": "adapters",
        "kauldron.modules.attention": "attention",
        "kauldron.modules.input_embeddings": "embeddings",
        "kauldron.modules.pos_embeddings": "embeddings",
        "kauldron.modules.transformers": "transformers",
        "kauldron.modules.vit": "vit",
    },
)
