"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.cli",
    {
        "cmd_utils": "kauldron.cli",
        "config": "kauldron.cli.commands.config",
        "data": "kauldron.cli.commands.data",
        "run": "kauldron.cli.commands.run",
        "patch_config": "kauldron.cli",
    },
)
