"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.cli",
    {
        "cmd_utils": "kauldron.cli",
        "patch_config": "kauldron.cli",
    },
)
