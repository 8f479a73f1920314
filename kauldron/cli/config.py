"""`kauldron config ...`, from Python."""

from kauldron.cli.config_resolve import Resolve as Resolve
from kauldron.cli.config_show import Show as Show
