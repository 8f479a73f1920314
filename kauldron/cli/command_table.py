"""The table of commands that `kauldron --help` lists.

It names where each command is implemented, and imports none of them.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

# Exit codes of all commands.
OK = 0
FAILED = 1  # a run that began
FOUND_SOMETHING = 1  # problems, differences
BAD_INPUT = 2  # wrong usage, a config that cannot be loaded
INTERRUPTED = 130  # Ctrl-C
STOPPED = 143  # told to save and stop


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One command.

    Attributes:
      summary: One line for `--help`.
      implementation: Where its class is: `"module:Class"`, in `kauldron.cli.commands`.
      configs: The names of the flags that give a config, with its overrides.
      needs_configs: Whether all of them are required.
      arguments: Those without a flag, as the usage shows them.
    """

    summary: str
    implementation: str
    configs: tuple[str, ...] = ("cfg",)
    needs_configs: bool = True
    arguments: tuple[str, ...] = ()

    def load(self) -> Any:
        """Import the class of the command.

        Neither of its two functions needs an object: `add_arguments(parser)` adds the
        options other than `--cfg` and its overrides; `run(args)`, where `args.cfg` is
        the `ConfigSource`, does the work and returns the exit code.
        """
        module, _, name = self.implementation.partition(":")
        return getattr(importlib.import_module(f"kauldron.cli.commands.{module}"), name)


# From the words that name a command.
COMMANDS: dict[tuple[str, ...], Command] = {
    ("init",): Command(
        summary="Write a new project: config, model, data, metric, tests, notebook",
        implementation="init:Init",
        configs=(),
        arguments=("NAME",),
    ),
    ("train",): Command(
        summary="Train, evaluate and save what the config describes; resume if it ran",
        implementation="train:Train",
    ),
    ("eval",): Command(
        summary="Evaluate the checkpoints of a run as they appear, in another process",
        implementation="eval:Eval",
        needs_configs=False,
    ),
    ("test",): Command(
        summary="Evaluate a checkpoint of a run again, and print the values",
        implementation="test:Test",
        needs_configs=False,
        arguments=("WORKDIR",),
    ),
    ("check",): Command(
        summary="Find all problems before training: config, keys, shapes",
        implementation="check:Check",
    ),
    ("runs",): Command(
        summary="List runs: state, step, speed, what differs in their configs, metrics",
        implementation="runs:Runs",
        arguments=("[folder]",),
        configs=(),
    ),
    ("board",): Command(
        summary="Show runs in the browser: curves, tables, pictures, sweeps, configs",
        implementation="board:Board",
        arguments=("[folder]",),
        configs=(),
    ),
    ("report",): Command(
        summary="Write the board of some runs as one HTML file",
        implementation="board:Report",
        arguments=("WORKDIR", "..."),
        configs=(),
    ),
    ("launch",): Command(
        summary="Start the jobs of a config, or any program, here or on a cluster",
        implementation="launch:Launch",
        configs=("cfg", "xp"),
        needs_configs=False,
    ),
    ("sweep",): Command(
        summary="Start one run for each combination of --sweep.path=values",
        implementation="launch:Sweep",
        configs=("cfg", "xp", "sweep"),
        needs_configs=False,
    ),
    ("xp", "list"): Command(
        summary="List experiments that were launched",
        implementation="xp:List",
        configs=(),
    ),
    ("xp", "status"): Command(
        summary="Show the work units of an experiment: state, progress, metrics",
        implementation="xp:Status",
        configs=(),
        arguments=("XID", "[WIDS]"),
    ),
    ("xp", "logs"): Command(
        summary="Print the log of a job",
        implementation="xp:Logs",
        configs=(),
        arguments=("XID", "[WID]", "[JOB]"),
    ),
    ("xp", "stop"): Command(
        summary="Tell work units to save and stop",
        implementation="xp:Stop",
        configs=(),
        arguments=("XID", "[WIDS]"),
    ),
    ("xp", "resume"): Command(
        summary="Run the work units that did not succeed, where they stopped",
        implementation="xp:Resume",
        configs=(),
        arguments=("XID", "[WIDS]"),
    ),
    ("xp", "best"): Command(
        summary="List the work units by a metric, the best first",
        implementation="xp:Best",
        configs=(),
        arguments=("XID",),
    ),
    ("xp", "show"): Command(
        summary="Print the record of an experiment",
        implementation="xp:Show",
        configs=(),
        arguments=("XID",),
    ),
    ("xp", "note"): Command(
        summary="Change the note of an experiment",
        implementation="xp:Note",
        configs=(),
        arguments=("XID", "TEXT"),
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
    ("data", "profile"): Command(
        summary="Print what a record costs at each stage, and how to set num_workers",
        implementation="data:Profile",
    ),
    ("completion",): Command(
        summary="Print the script with which bash, zsh or fish complete commands",
        implementation="completion:Completion",
        configs=(),
        arguments=("SHELL",),
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
