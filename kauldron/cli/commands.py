"""The commands: the table that `kauldron --help` lists, and commands as objects.

The table names where each command is implemented, and imports none of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kauldron import konfig
    from kauldron.cli.loading import ConfigOrigin
    from kauldron.train import Trainer

# Exit codes of all commands.
OK = 0
FAILED = 1  # a run that began
FOUND_SOMETHING = 1  # problems, differences
BAD_INPUT = 2  # wrong usage, a config that cannot be loaded
INTERRUPTED = 130  # Ctrl-C


class Implementation(Protocol):
    """What the class of a command defines; neither needs an object of it."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command, other than `--cfg` and its overrides."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit code. `args.cfg` is the `ConfigSource`."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One command.

    Attributes:
      summary: One line for `--help`.
      implementation: Where its class is: `"module:Class"`, in `kauldron.cli`.
      configs: The names of the flags that give a config, with its overrides.
      needs_configs: Whether all of them are required.
      arguments: Those without a flag, as the usage shows them.
    """

    summary: str
    implementation: str
    configs: tuple[str, ...] = ("cfg",)
    needs_configs: bool = True
    arguments: tuple[str, ...] = ()

    def load(self) -> Implementation:
        """Import the command."""
        module, _, name = self.implementation.partition(":")
        return getattr(importlib.import_module(f"kauldron.cli.{module}"), name)


# From the words that name a command.
COMMANDS: dict[tuple[str, ...], Command] = {
    ("train",): Command(
        summary="Train, evaluate and save what the config describes; resume if it ran",
        implementation="train:Train",
    ),
    ("eval",): Command(
        summary="Evaluate the checkpoints of a run as they appear, in another process",
        implementation="eval:Eval",
        needs_configs=False,
    ),
    ("check",): Command(
        summary="Find all problems before training: config, keys, shapes",
        implementation="check:Check",
    ),
    ("runs",): Command(
        summary="List workdirs with their last step, values and state",
        implementation="runs:Runs",
        arguments=("[folder]",),
        configs=(),
    ),
    ("config", "show"): Command(
        summary="Print the config, before anything of it is built",
        implementation="config:Show",
    ),
    ("config", "resolve"): Command(
        summary="Build everything that the config describes, and print it",
        implementation="config:Resolve",
    ),
    ("config", "check"): Command(
        summary="List all problems of the config without building anything",
        implementation="config:Check",
    ),
    ("config", "diff"): Command(
        summary="Print what differs between two configs",
        implementation="config:Diff",
        configs=("cfg", "other"),
    ),
    ("config", "paths"): Command(
        summary="List all fields that can be overridden, with value and origin",
        implementation="config:Paths",
        arguments=("[patterns ...]",),
    ),
    ("data", "element_spec"): Command(
        summary="Print path, dtype and shape of what a data set yields",
        implementation="data:ElementSpec",
    ),
    ("data", "show"): Command(
        summary="Print statistics of the first batches of a data set",
        implementation="data:Show",
    ),
    ("run", "train"): Command(
        summary="The same as train",
        implementation="train:Train",
    ),
    ("run", "eval"): Command(
        summary="The same as eval",
        implementation="eval:Eval",
        needs_configs=False,
    ),
    ("run", "eval_shape"): Command(
        summary="Print the shapes of the state and of a train step",
        implementation="run:EvalShape",
    ),
    ("run", "memory"): Command(
        summary="Compile a train step and print the memory that it needs",
        implementation="run:Memory",
    ),
}

# What `kauldron --cfg=...` without the name of a command means.
DEFAULT_COMMAND = ("train",)


#
# Commands as objects: what `kauldron <group> <command>` does, from Python
#


@dataclasses.dataclass(frozen=True, eq=False)
class SubCommand:
    """A command on a config. Subclasses add options as fields and define `__call__`.

    Attributes:
      cfg: The config.
      origin: Where it came from.
      group: The group that the command is run in.

    Example:
      >>> from kauldron import konfig
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
        from kauldron import konfig

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
        """Do the work and return the exit code, or `None` for 0."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__.")

    def execute(self) -> Any:
        """Call the command."""
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
