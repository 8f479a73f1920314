"""`kauldron config paths`."""

from __future__ import annotations

import argparse

from kauldron import konfig, path_grammar
from kauldron.cli.commands import OK
from kauldron.cli.config_loading import load_config
from kauldron.cli.terminal import print_json, print_table
from kauldron.cli.usage_errors import UsageError
from kauldron.konfig.flattening import iter_leaves
from kauldron.konfig.pathing import Parts, raw_child
from kauldron.konfig.placeholders import is_unset_required
from kauldron.konfig.repr_text import format_value
from kauldron.konfig.text_listing import describe_origin

_WIDTH = 60


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
