"""The `kauldron` command.

`commands.py` is the table of commands; each command is one file, imported when it is
called. To add one, write `kauldron/cli/<group>_<name>.py` with `add_arguments(parser)`
and `run(args) -> int`, and give it a line in the table.
"""

from kauldron.cli.command_line import main as main
from kauldron.cli.commands import COMMANDS as COMMANDS
from kauldron.cli.commands import Command as Command
from kauldron.cli.usage_errors import UsageError as UsageError
