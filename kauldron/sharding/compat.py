"""Older module paths, which pickles and saved configs may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    {
        "kauldron.sharding.fsdp": "kauldron.sharding.strategy",
    }
)
