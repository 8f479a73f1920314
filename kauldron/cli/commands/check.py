"""`kauldron check`: find everything that is wrong with an experiment before it trains.

A part that cannot be built is left out, so that the rest is checked too.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from kauldron import konfig, path_grammar
from kauldron.cli.command_table import FOUND_SOMETHING, OK, Implementation
from kauldron.cli.loading import load_config, users_line
from kauldron.cli.terminal import print_lines
from kauldron.errors import a_type, message_with_notes
from kauldron.konfig.resolution.problems import excluded_fields
from kauldron.konfig.tree.history import describe_origin

if TYPE_CHECKING:
    from kauldron.train import Trainer


class Check(Implementation):
    """Find all problems before training: config, keys, shapes."""

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        _use_no_accelerator()
        cfg = load_config(args.cfg, import_nothing=False)
        problems = _find_problems(cfg)
        return report(
            problems.messages,
            args.cfg.file,
            warnings=problems.warnings,
            healthy=": one train step and each evaluation fit.",
        )


def report(
    problems: Sequence[str],
    file: str,
    *,
    warnings: Sequence[str] = (),
    healthy: str = "",
) -> int:
    """Print what is wrong with a config, or that nothing is; return the exit code."""
    lines = [*problems, *warnings]
    if lines:
        print_lines(lines, {"c": "red", "w": "yellow"})
    if not problems:
        print(f"No problems found in {file}{healthy}")
        return OK
    print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in {file}")
    return FOUND_SOMETHING


def _use_no_accelerator() -> None:
    """Use the CPU: shapes need no accelerator, which another run may be using."""
    import jax

    if not jax.config.jax_platforms:  # neither JAX_PLATFORMS nor --jax_platforms
        jax.config.update("jax_platforms", "cpu")


def _find_problems(cfg: konfig.ConfigDict) -> Problems:
    """Build everything and evaluate the shapes of one step, without a device."""
    from kauldron import train

    build = build_what_can_be(cfg)
    trainer, problems = build.trainer, build.problems
    if isinstance(trainer, train.Trainer):
        problems.add_all_of(trainer, left_out=build.left_out)
    elif trainer is not None and not problems.messages:
        problems.messages.append(
            f"The config describes {a_type(trainer)}, not a Trainer."
        )
    return problems


class Problems:
    """Collects what is wrong, each under the path of the config it is about.

    Attributes:
      messages: What stops a run.
      warnings: What it only warns about.
      cause: The first exception by which a problem was found.
    """

    def __init__(self, cfg: konfig.ConfigDict):
        self._cfg = cfg
        self.messages: list[str] = []
        self.warnings: list[str] = []
        self.cause: Exception | None = None

    def add(self, path: str, message: str) -> None:
        """Add a problem of `cfg.<path>`."""
        self.messages.append(f"cfg.{path}: {message}{self._place(path)}")

    def add_all_of(self, trainer: Trainer, *, left_out: Collection[str] = ()) -> None:
        """Add what is wrong with a trainer from which some paths were left out."""
        from kauldron.train import problems

        for problem in problems.find_all(trainer):
            if _is_about(problem.path, left_out):
                continue
            line = users_line(problem.error) if problem.error else ""
            message = f"{problem.message}{line}"
            self.cause = self.cause or problem.error
            if problem.is_error:
                self.add(problem.path, message)
            else:
                place = self._place(problem.path)
                self.warnings.append(f"warning: cfg.{problem.path}: {message}{place}")

    def _place(self, path: str) -> str:
        """Return where it was set, and by which flags it was changed."""
        try:
            node = konfig.get_by_path(self._cfg, path)
        except KeyError:  # a default of the trainer
            return ""
        events = [*konfig.history(self._cfg, path)[-1:]]
        parts = path_grammar.parse(path)
        for name in node if isinstance(node, konfig.ConfigDict) else ():
            below = path_grammar.format_path((*parts, name))
            last = konfig.history(self._cfg, below)[-1:]
            events += [event for event in last if event.kind == "cli"]
        origins = dict.fromkeys(map(describe_origin, events))
        return "".join(f"\n  {origin}" for origin in origins)


def _is_about(path: str, left_out: Collection[str]) -> bool:
    """Return whether a problem may exist only because parts could not be built."""
    if path == "checkpointer.best_metric_path":  # it names a part
        return any(part.startswith(("evals", "train_")) for part in left_out)
    return any(f"{part}.".startswith(f"{path}.") for part in left_out)


#
# Building what can be built
#


# Fields with members that can be left out one by one.
_WITH_MEMBERS = (
    "evals",
    "train_losses",
    "train_metrics",
    "train_summaries",
    "schedules",
)


@dataclasses.dataclass
class Build:
    """What could be built.

    Attributes:
      problems: Why the rest could not be built.
      trainer: What the config describes, without the parts that are left out. `None`
        if nothing can be built.
      left_out: Paths of the parts that cannot be built.
    """

    problems: Problems
    trainer: Any = None
    left_out: set[str] = dataclasses.field(default_factory=set)


def build_what_can_be(cfg: konfig.ConfigDict) -> Build:
    """Build a config, leaving out parts that fail until the rest can be built."""
    found = konfig.check(cfg)
    build = Build(Problems(cfg))
    build.problems.messages += map(str, found)
    failing = {_part_of(cfg, problem.path) for problem in found}
    while build.trainer is None and "" not in failing:
        failing |= build.left_out
        build.left_out = failing | _dependents(cfg, failing)
        failing = _try(cfg, build) - build.left_out or {""}
    return build


def _dependents(cfg: konfig.ConfigDict, left_out: set[str]) -> set[str]:
    """Return the parts that refer to what is left out."""
    found: set[str] = set()
    while "" not in found:
        rest = _without(cfg, left_out | found)
        new = {_part_of(cfg, problem.path) for problem in konfig.check(rest)} - found
        if not new:
            break
        found |= new
    return found


def _try(cfg: konfig.ConfigDict, build: Build) -> set[str]:
    """Build what is not left out; return the parts that fail."""
    if "" in build.left_out:
        return set()
    try:
        build.trainer = konfig.resolve(_without(cfg, build.left_out))
        return set()
    except Exception as error:
        failing = _failing_alone(cfg, build)
        if failing:
            return failing
        message = message_with_notes(error)
        complaint = re.search(r"`trainer\.(\w+)(?:\['(.+?)'\])?.*", message, re.DOTALL)
        if complaint:
            names = [name for name in complaint.groups() if name is not None]
            path = path_grammar.format_path(tuple(names))
            build.problems.add(path, complaint[0])
            return {path}
        if not build.left_out:  # otherwise it may fail because of them
            build.problems.messages.append(message)
        return set()


def _failing_alone(cfg: konfig.ConfigDict, build: Build) -> set[str]:
    failing = set()
    messages: dict[str, str] = {}
    skipped = build.left_out | _unresolved_fields(cfg)
    for path in _parts(cfg):
        if path in skipped:
            continue
        try:
            konfig.resolve(konfig.get_by_path(cfg, path))
        except Exception as error:
            message = message_with_notes(error)
            # What several parts refer to fails in each of them for the same reason.
            messages.setdefault(message.splitlines()[-1], message)
            failing.add(path)
    build.problems.messages += messages.values()
    return failing


def _unresolved_fields(cfg: konfig.ConfigDict) -> frozenset[str]:
    """Return the fields that stay as they are, such as those of a launcher."""
    try:
        return excluded_fields(konfig.resolve({"__const__": cfg["__qualname__"]}))
    except Exception:  # resolving the config fails for the same reason
        return frozenset()


def _parts(cfg: konfig.ConfigDict) -> list[str]:
    """Return the paths of what is built on its own."""
    parts = []
    for name, value in cfg.items():
        if name in _WITH_MEMBERS and isinstance(value, konfig.ConfigDict):
            members = [(name, key) for key in value]
        else:
            members = [(name,)]
        parts += [path_grammar.format_path(member) for member in members]
    return [
        path
        for path in parts
        if isinstance(konfig.get_by_path(cfg, path), konfig.ConfigDict)
    ]


def _part_of(cfg: konfig.ConfigDict, path: str) -> str:
    """Return the part in which a path lies; empty for the config itself."""
    names = path_grammar.parse(path) if path else ()
    for part in _parts(cfg):
        inside = path_grammar.parse(part)
        if names[: len(inside)] == inside:
            return part
    return path_grammar.format_path(names[:1]) if names else ""


def _without(cfg: konfig.ConfigDict, paths: set[str]) -> konfig.ConfigDict:
    rest = copy.deepcopy(cfg)
    for path in paths:
        *parents, name = path_grammar.parse(path)
        node = rest
        for parent in parents:
            node = node.get(parent, {})
        if name in node:
            del node[name]
    return rest
