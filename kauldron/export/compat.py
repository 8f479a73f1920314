"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.export",
    {
        "exporter": "kauldron.export",
    },
)
