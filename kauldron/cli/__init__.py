"""The `kauldron` command.

`command_table.py` lists the commands, which are in `commands/`; the class of each is
imported when it is called. To add one, derive a class from `Implementation` with
`add_arguments(parser)` and `run(args) -> int`, and give it a line in the table.

From Python, commands are objects: `kd.cli.run.EvalShape(cfg)()`.
"""

from __future__ import annotations

from kauldron.cli import compat as compat
from kauldron.cli.command_table import COMMANDS as COMMANDS
from kauldron.cli.command_table import Command as Command
from kauldron.cli.main import main as main
from kauldron.cli.terminal import UsageError as UsageError
from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    from kauldron.cli.commands import config as config
    from kauldron.cli.commands import data as data
    from kauldron.cli.commands import run as run
    from kauldron.cli.commands.run import print_spec as print_spec
    from kauldron.cli.commands.run import timed as timed
    from kauldron.cli.loading import CommandGroup as CommandGroup
    from kauldron.cli.loading import ConfigOrigin as ConfigOrigin
    from kauldron.cli.loading import SubCommand as SubCommand
    from kauldron.cli.loading import execute_command as execute_command
    from kauldron.cli.patch import BATCH_SIZE_DEVICES as BATCH_SIZE_DEVICES
    from kauldron.cli.patch import PatchConfig as PatchConfig
    from kauldron.cli.patch import tracked_update as tracked_update
