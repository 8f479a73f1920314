"""Commands as objects: what `kauldron <group> <command>` does, from Python."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from kauldron import konfig
from kauldron.cli.config_origin import ConfigOrigin

if TYPE_CHECKING:
    from kauldron.train import Trainer


@dataclasses.dataclass(frozen=True, eq=False)
class SubCommand:
    """A command on a config. Subclasses add options as fields and define `__call__`.

    Attributes:
      cfg: The config.
      origin: Where it came from.
      group: The group that the command is run in.

    Example:
      >>> @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
      ... class Count(SubCommand):
      ...     text: str = "fields"
      ...
      ...     def __call__(self):
      ...         print(len(self.cfg), self.text)
      >>> Count(konfig.ConfigDict({"a": 1}), text="field")()
      1 field
    """

    cfg: konfig.ConfigDict | None = None
    origin: ConfigOrigin | None = None
    group: CommandGroup | None = dataclasses.field(default=None, repr=False)

    @functools.cached_property
    def trainer(self) -> Trainer:
        """The trainer that the config describes, built when it is first asked for."""
        return konfig.resolve(self.config)

    @property
    def config(self) -> konfig.ConfigDict:
        """The config, which must be there."""
        if self.cfg is None:
            raise ValueError(f"{type(self).__name__} needs a config: pass `cfg=`.")
        return self.cfg

    def print_config_origin(self) -> None:
        """Print where the config came from."""
        if self.origin is not None and self.origin.summary():
            print("\n".join(f"# {line}" for line in self.origin.summary().split("\n")))

    def __call__(self) -> Any:
        """Do the work. Returns the exit code, or `None` for 0."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__.")

    def execute(self) -> Any:
        """The same as calling it."""
        return self()


@dataclasses.dataclass(frozen=True, eq=False)
class CommandGroup:
    """Commands that belong together, of which one was chosen.

    Attributes:
      sub_command: The chosen one.
    """

    sub_command: SubCommand


def execute_command(
    group: CommandGroup, cfg: konfig.ConfigDict, origin: ConfigOrigin | None = None
) -> Any:
    """Run the chosen command of a group on a config.

    Args:
      group: The group.
      cfg: The config.
      origin: Where the config came from.

    Returns:
      What the command returns.
    """
    changes = {"cfg": cfg, "origin": origin, "group": group}
    return dataclasses.replace(group.sub_command, **changes)()
