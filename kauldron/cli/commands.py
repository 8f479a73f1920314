"""The table of commands: what `kauldron --help` lists. Imports none of them."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from typing import Protocol

# Exit codes of all commands.
OK = 0
FAILED = 1  # a run that began
FOUND_SOMETHING = 1  # problems, differences
BAD_INPUT = 2  # wrong usage, a config that cannot be loaded
INTERRUPTED = 130  # Ctrl-C


class CommandModule(Protocol):
    """What the module of a command defines."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of the command, other than `--cfg` and its overrides."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Does the work. `args.cfg` is the `ConfigSource`. Returns the exit code."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One command.

    Attributes:
      summary: One line for `--help`.
      module: Where it is implemented.
      configs: The names of the flags that give a config, with its overrides.
      needs_configs: Whether all of them are required.
      arguments: Those without a flag, as the usage shows them.
    """

    summary: str
    module: str
    configs: tuple[str, ...] = ("cfg",)
    needs_configs: bool = True
    arguments: tuple[str, ...] = ()

    def load(self) -> CommandModule:
        return importlib.import_module(self.module)  # pyright: ignore


# From the words that name a command.
COMMANDS: dict[tuple[str, ...], Command] = {
    ("train",): Command(
        summary="Train, evaluate and save what the config describes; resume if it ran",
        module="kauldron.cli.train",
    ),
    ("eval",): Command(
        summary="Evaluate the checkpoints of a run as they appear, in another process",
        module="kauldron.cli.eval",
        needs_configs=False,
    ),
    ("check",): Command(
        summary="Find all problems before training: config, keys, shapes",
        module="kauldron.cli.check",
    ),
    ("runs",): Command(
        summary="List workdirs with their last step, values and state",
        module="kauldron.cli.runs",
        arguments=("[folder]",),
        configs=(),
    ),
    ("config", "show"): Command(
        summary="Print the config, before anything of it is built",
        module="kauldron.cli.config_show",
    ),
    ("config", "resolve"): Command(
        summary="Build everything that the config describes, and print it",
        module="kauldron.cli.config_resolve",
    ),
    ("config", "check"): Command(
        summary="List all problems of the config without building anything",
        module="kauldron.cli.config_check",
    ),
    ("config", "diff"): Command(
        summary="Print what differs between two configs",
        module="kauldron.cli.config_diff",
        configs=("cfg", "other"),
    ),
    ("config", "paths"): Command(
        summary="List all fields that can be overridden, with value and origin",
        module="kauldron.cli.config_paths",
        arguments=("[patterns ...]",),
    ),
    ("data", "element_spec"): Command(
        summary="Print path, dtype and shape of what a data set yields",
        module="kauldron.cli.data_element_spec",
    ),
    ("data", "show"): Command(
        summary="Print statistics of the first batches of a data set",
        module="kauldron.cli.data_show",
    ),
    ("run", "train"): Command(
        summary="The same as train",
        module="kauldron.cli.train",
    ),
    ("run", "eval"): Command(
        summary="The same as eval",
        module="kauldron.cli.eval",
        needs_configs=False,
    ),
    ("run", "eval_shape"): Command(
        summary="Print the shapes of the state and of a train step",
        module="kauldron.cli.run_eval_shape",
    ),
    ("run", "memory"): Command(
        summary="Compile a train step and print the memory that it needs",
        module="kauldron.cli.run_memory",
    ),
}

# What `kauldron --cfg=...` without the name of a command means.
DEFAULT_COMMAND = ("train",)
