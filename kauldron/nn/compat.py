"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

_MOVED = {
    "knn_types": "protocols",
    "misc": "layers models",
    "adapter": "adapters",
    "input_embeddings": "embeddings",
    "pos_embeddings": "embeddings",
}
_SAME = {
    "models": "models layers",
    "attention": "attention",
    "transformers": "transformers",
    "vit": "vit",
    "deprecated": "deprecated",
}

older_modules(
    "kauldron.nn",
    {
        "dropout": "layers",
        "identity": "layers",
        "einops_layers": "layers",
        "sequential": "layers",
        "flat_autoencoder": "models",
        "dummy_model": "models",
        **_MOVED,
        **{f"kauldron.modules.{path}": now for path, now in (_MOVED | _SAME).items()},
    },
)
