"""Build as much of a config as can be built, and gather what is wrong with the rest."""

from __future__ import annotations

import copy
import dataclasses
import re
from typing import Any

from kauldron import konfig, path_grammar
from kauldron.cli.problems import Problems
from kauldron.utils.error_context import message_with_notes

# Fields whose members stand for themselves: one can be left out.
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
    """Build a config, again and again, without the parts that fail.

    Args:
      cfg: The config of a trainer; it stays as it is.
    """
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
    """Parts that refer to what is left out."""
    found: set[str] = set()
    while "" not in found:
        rest = _without(cfg, left_out | found)
        new = {_part_of(cfg, problem.path) for problem in konfig.check(rest)} - found
        if not new:
            break
        found |= new
    return found


def _try(cfg: konfig.ConfigDict, build: Build) -> set[str]:
    """Build what is not left out; the parts that fail."""
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
        if not build.left_out:  # else it may miss just what is left out
            build.problems.messages.append(message)
        return set()


def _failing_alone(cfg: konfig.ConfigDict, build: Build) -> set[str]:
    failing = set()
    messages: dict[str, str] = {}
    for path in _parts(cfg):
        if path in build.left_out:
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


def _parts(cfg: konfig.ConfigDict) -> list[str]:
    """Paths of what is built for itself."""
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
    """The part in which a path lies; empty for the config itself."""
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
