"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron",
    {
        "checkpoints": "ckpts",
        "checkpoints.checkpoint_items": "ckpts.items",
        "checkpoints.checkpointer": "ckpts.checkpointer ckpts.checkpointer_base",
        "checkpoints.partial_loader": "ckpts.partial_loader ckpts.init_transforms",
        "modules": "nn",
        "modules.adapter": "nn.adapters",
        "modules.attention": "nn.attention",
        "modules.deprecated": "nn.deprecated",
        "modules.input_embeddings": "nn.embeddings",
        "modules.knn_types": "nn.protocols",
        "modules.misc": "nn.layers nn.models",
        "modules.models": "nn.models nn.layers",
        "modules.pos_embeddings": "nn.embeddings",
        "modules.transformers": "nn.transformers",
        "modules.vit": "nn.vit",
    },
)
