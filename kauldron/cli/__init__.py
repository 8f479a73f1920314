"""The `kauldron` command.

`commands.py` is the table of commands; each command is one file, imported when it is
called. To add one, write `kauldron/cli/<group>_<name>.py` with `add_arguments(parser)`
and `run(args) -> int`, and give it a line in the table.

From Python, commands are objects: `kd.cli.run.EvalShape(cfg)()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.cli.command_line import main as main
from kauldron.cli.commands import COMMANDS as COMMANDS
from kauldron.cli.commands import Command as Command
from kauldron.cli.usage_errors import UsageError as UsageError
from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.cli import cmd_utils as cmd_utils
    from kauldron.cli import config as config
    from kauldron.cli import data as data
    from kauldron.cli import run as run
    from kauldron.cli.config_changes import tracked_update as tracked_update
    from kauldron.cli.config_origin import ConfigOrigin as ConfigOrigin
    from kauldron.cli.patch_config import BATCH_SIZE_DEVICES as BATCH_SIZE_DEVICES
    from kauldron.cli.patch_config import PatchConfig as PatchConfig
    from kauldron.cli.spec_printing import print_spec as print_spec
    from kauldron.cli.spec_printing import timed as timed
    from kauldron.cli.sub_command import CommandGroup as CommandGroup
    from kauldron.cli.sub_command import SubCommand as SubCommand
    from kauldron.cli.sub_command import execute_command as execute_command

_MEMBERS = {
    "config": "config",
    "data": "data",
    "run": "run",
    "cmd_utils": "cmd_utils",
    "PatchConfig": "patch_config:PatchConfig",
    "BATCH_SIZE_DEVICES": "patch_config:BATCH_SIZE_DEVICES",
    "ConfigOrigin": "config_origin:ConfigOrigin",
    "CommandGroup": "sub_command:CommandGroup",
    "SubCommand": "sub_command:SubCommand",
    "execute_command": "sub_command:execute_command",
    "tracked_update": "config_changes:tracked_update",
    "timed": "spec_printing:timed",
    "print_spec": "spec_printing:print_spec",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{where}" for name, where in _MEMBERS.items()}
)
