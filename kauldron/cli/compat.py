"""Older module paths of the Python side of commands."""

from kauldron.lazy_namespace import older_modules

older_modules(
    {
        "kauldron.cli.cmd_utils": "kauldron.cli",
        "kauldron.cli.patch_config": "kauldron.cli",
    }
)
