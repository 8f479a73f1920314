"""The table of commands that `kauldron --help` lists.

It names where each command is implemented, and imports none of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from typing import ClassVar

# Exit codes of all commands.
OK = 0
FAILED = 1  # a run that began
FOUND_SOMETHING = 1  # problems, differences
BAD_INPUT = 2  # wrong usage, a config that cannot be loaded
INTERRUPTED = 130  # Ctrl-C
STOPPED = 143  # told to save and stop


class Implementation:
    """Base class of commands; `add_arguments` and `run` are called on the class itself.

    Attributes:
      configs: The names of the flags that give a config, with its overrides.
      needs_configs: Whether all of them are required.
    """

    configs: ClassVar[tuple[str, ...]] = ("cfg",)
    needs_configs: ClassVar[bool] = True

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the options of the command, other than `--cfg` and its overrides."""

    @classmethod
    def run(cls, args: argparse.Namespace) -> int:
        """Do the work and return the exit code. `args.cfg` is the `ConfigSource`."""
        raise NotImplementedError(f"{cls.__name__} does not define `run`.")


@dataclasses.dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
      implementation: Where its class is: `"module:Class"`, in `kauldron.cli.commands`.
      summary: One line for `--help`.
    """

    implementation: str
    summary: str

    def load(self) -> type[Implementation]:
        """Import the class of the command."""
        module, _, name = self.implementation.partition(":")
        return getattr(importlib.import_module(f"kauldron.cli.commands.{module}"), name)


# From the words that name a command.
COMMANDS: dict[tuple[str, ...], Command] = {
    ("init",): Command(
        "init:Init", "Write a new project: config, model, data, metric, tests, notebook"
    ),
    ("train",): Command(
        "train:Train",
        "Train, evaluate and save what the config describes; resume if it ran",
    ),
    ("eval",): Command(
        "eval:Eval",
        "Evaluate the checkpoints of a run as they appear, in another process",
    ),
    ("test",): Command(
        "test:Test", "Evaluate a checkpoint of a run again, and print the values"
    ),
    ("check",): Command(
        "check:Check", "Find all problems before training: config, keys, shapes"
    ),
    ("runs",): Command(
        "runs:Runs",
        "List runs: state, step, speed, what differs in their configs, metrics",
    ),
    ("board",): Command(
        "board:Board",
        "Show runs in the browser: curves, tables, pictures, sweeps, configs",
    ),
    ("report",): Command(
        "board:Report", "Write the board of some runs as one HTML file"
    ),
    ("launch",): Command(
        "launch:Launch",
        "Start the jobs of a config, or any program, here or on a cluster",
    ),
    ("sweep",): Command(
        "launch:Sweep", "Start one run for each combination of --sweep.path=values"
    ),
    ("xp", "list"): Command("xp:List", "List experiments that were launched"),
    ("xp", "status"): Command(
        "xp:Status", "Show the work units of an experiment: state, progress, metrics"
    ),
    ("xp", "logs"): Command("xp:Logs", "Print the log of a job"),
    ("xp", "stop"): Command("xp:Stop", "Tell work units to save and stop"),
    ("xp", "resume"): Command(
        "xp:Resume", "Run the work units that did not succeed, where they stopped"
    ),
    ("xp", "best"): Command(
        "xp:Best", "List the work units by a metric, the best first"
    ),
    ("xp", "show"): Command("xp:Show", "Print the record of an experiment"),
    ("xp", "note"): Command("xp:Note", "Change the note of an experiment"),
    ("config", "show"): Command(
        "config:Show", "Print the config, before anything of it is built"
    ),
    ("config", "resolve"): Command(
        "config:Resolve", "Build everything that the config describes, and print it"
    ),
    ("config", "check"): Command(
        "config:Check", "List all problems of the config without building anything"
    ),
    ("config", "diff"): Command(
        "config:Diff", "Print what differs between two configs"
    ),
    ("config", "paths"): Command(
        "config:Paths", "List all fields that can be overridden, with value and origin"
    ),
    ("data", "element_spec"): Command(
        "data:ElementSpec", "Print path, dtype and shape of what a data set yields"
    ),
    ("data", "show"): Command(
        "data:Show", "Print statistics of the first batches of a data set"
    ),
    ("data", "profile"): Command(
        "data:Profile",
        "Print what a record costs at each stage, and how to set num_workers",
    ),
    ("completion",): Command(
        "completion:Completion",
        "Print the script with which bash, zsh or fish complete commands",
    ),
    ("run", "train"): Command("train:Train", "The same as train"),
    ("run", "eval"): Command("eval:Eval", "The same as eval"),
    ("run", "eval_shape"): Command(
        "run:EvalShape", "Print the shapes of the state and of a train step"
    ),
    ("run", "memory"): Command(
        "run:Memory", "Compile a train step and print the memory that it needs"
    ),
}

# What `kauldron --cfg=...` without the name of a command means.
DEFAULT_COMMAND = ("train",)
