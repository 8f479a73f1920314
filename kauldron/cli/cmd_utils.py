"""Older place of the Python side of commands."""

from kauldron.cli.config_changes import tracked_update as tracked_update
from kauldron.cli.config_origin import ConfigOrigin as ConfigOrigin
from kauldron.cli.spec_printing import print_spec as print_spec
from kauldron.cli.spec_printing import timed as timed
from kauldron.cli.sub_command import CommandGroup as CommandGroup
from kauldron.cli.sub_command import SubCommand as SubCommand
from kauldron.cli.sub_command import execute_command as execute_command
