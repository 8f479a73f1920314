"""`kauldron config ...`: look at a config, check it, compare it with another.

Except for `resolve`, none of them imports what the config names.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex

from kauldron import konfig, path_grammar
from kauldron.cli.command_table import FOUND_SOMETHING, OK, Implementation
from kauldron.cli.commands.check import report
from kauldron.cli.loading import SubCommand, load_config
from kauldron.cli.terminal import (
    UsageError,
    print_json,
    print_lines,
    print_python,
    print_table,
    write_page,
)
from kauldron.errors import a_type
from kauldron.konfig.overrides.config_files import is_saved_config, split_argument
from kauldron.konfig.overrides.values import format_value as format_flag
from kauldron.konfig.query.flatten import iter_leaves
from kauldron.konfig.text.printing import format_value
from kauldron.konfig.tree.history import describe_origin, short_repr
from kauldron.konfig.tree.paths import Parts, raw_child
from kauldron.konfig.tree.placeholders import is_unset_required


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Show(SubCommand):
    """Print a config, before anything of it is built.

    Attributes:
      json: Whether to print the JSON form.
      history: Whether to show where each field was set.
      html: A file to write a page to, instead of printing.
    """

    json: bool = False
    history: bool = False
    html: str | None = None
    import_nothing = True

    def __call__(self) -> int:
        cfg = self.config
        if self.json:
            print(cfg.to_json(indent=2))
        elif self.html:
            write_page(self.html, konfig.to_html(cfg), title="Config")
        else:
            self.print_config_origin()
            print_python(
                konfig.to_text(cfg, history=True) if self.history else repr(cfg)
            )
        return OK

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="print the JSON form")
        form.add_argument(
            "--history", action="store_true", help="show where each field was set"
        )
        form.add_argument("--html", metavar="FILE", help="write a page to look at")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Resolve(SubCommand):
    """Build everything that a config describes.

    Attributes:
      verbose: Whether to print what was built.
    """

    verbose: bool = True

    def __call__(self) -> int:
        built = self.trainer
        if self.verbose:
            print_python(repr(built))
        name = self.origin.filename if self.origin else None
        print(f"{name or 'The config'} resolves to {a_type(built)}.")
        return OK

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--verbose",
            action=argparse.BooleanOptionalAction,
            default=True,
            help="print what was built (default)",
        )


class Check(Implementation):
    """List all problems of a config without building anything."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print a JSON list")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        cfg = load_config(args.cfg, import_nothing=True)
        problems = konfig.check(cfg)
        if args.json:
            print_json([dataclasses.asdict(problem) for problem in problems])
            return FOUND_SOMETHING if problems else OK
        return report([str(problem) for problem in problems], args.cfg.file)


#
# config diff
#


_STYLES = {"~": "yellow", "+": "green", "-": "red"}


class Diff(Implementation):
    """Print what differs between two configs."""

    configs = ("cfg", "other")

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.epilog = (
            "--other=FILE [--other.path=value ...] is the config to compare with, given as "
            "--cfg is. Lines start with ~ (changed), + (only in --other) or - (only in "
            "--cfg)."
        )
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="print a JSON object")
        form.add_argument(
            "--flags",
            action="store_true",
            help="print the overrides that turn --cfg into --other, for a shell",
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        sources = (args.cfg, args.other)
        cfg, other = (load_config(source, import_nothing=True) for source in sources)
        if any(is_saved_config(split_argument(source.file)[0]) for source in sources):
            difference = konfig.diff(cfg.to_json(), other.to_json())
        else:
            difference = konfig.diff(cfg, other)
        if args.json:
            print_json(_as_json(difference))
        elif args.flags:
            for flag in _as_flags(difference):
                print(shlex.quote(flag))
        elif difference:
            print_lines(str(difference).split("\n"), _STYLES)
        return FOUND_SOMETHING if difference else OK


def _as_flags(difference: konfig.ConfigDiff) -> list[str]:
    try:
        overrides = difference.as_overrides()
        return [f"--cfg.{path}={format_flag(v)}" for path, v in overrides.items()]
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def _as_json(difference: konfig.ConfigDiff) -> dict[str, object]:
    return {
        "changed": {
            path: {"old": _plain(old), "new": _plain(new)}
            for path, (old, new) in difference.changed.items()
        },
        "added": {path: _plain(value) for path, value in difference.added.items()},
        "removed": {path: _plain(value) for path, value in difference.removed.items()},
        "shared": difference.shared,
        "no_longer_shared": difference.unshared,
    }


def _plain(value: object) -> object:
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    return value if is_plain else short_repr(value, 200)


#
# config paths
#


_WIDTH = 60


class Paths(Implementation):
    """List all fields that can be overridden, with value and origin."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "patterns",
            nargs="*",
            metavar="PATTERN",
            help="list only these paths, such as model.* or **.batch_size",
        )
        parser.add_argument(
            "--defaults",
            action="store_true",
            help="also list arguments that have a default (imports what the config names)",
        )
        parser.add_argument("--json", action="store_true", help="print a JSON list")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        cfg = load_config(args.cfg, import_nothing=True)
        if args.defaults:
            cfg = konfig.materialize_defaults(cfg)
        try:
            patterns = [path_grammar.parse(pattern) for pattern in args.patterns]
            leaves = list(iter_leaves(cfg))
        except (path_grammar.PathSyntaxError, konfig.CycleError) as error:
            raise UsageError(str(error)) from error
        paths = {
            path_grammar.format_path(parts): _value(cfg, parts, leaf)
            for parts, leaf in leaves
            if not patterns or any(path_grammar.matches(parts, p) for p in patterns)
        }
        rows = [(path, value, _origin(cfg, path)) for path, value in paths.items()]
        if args.json:
            names = ("path", "value", "origin")
            print_json([dict(zip(names, row)) for row in rows])
        else:
            print_table(rows, ("Path", "Value", "Origin"))
        return OK


def _value(cfg: konfig.ConfigDict, parts: Parts, leaf: object) -> str:
    raw = raw_child(konfig.get_by_path(cfg, parts[:-1]), parts[-1])
    text = format_value(raw if is_unset_required(raw) else leaf)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _origin(cfg: konfig.ConfigDict, path: str) -> str:
    events = konfig.history(cfg, path)
    return describe_origin(events[-1]) if events else ""
