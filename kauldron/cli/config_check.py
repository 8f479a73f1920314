"""`kauldron config check`."""

from __future__ import annotations

import argparse
import dataclasses

from kauldron import konfig
from kauldron.cli.commands import FOUND_SOMETHING, OK
from kauldron.cli.config_loading import load_config
from kauldron.cli.terminal import print_json, print_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON list")


def run(args: argparse.Namespace) -> int:
    cfg = load_config(args.cfg, import_nothing=True)
    problems = konfig.check(cfg)
    if args.json:
        print_json([dataclasses.asdict(problem) for problem in problems])
    elif problems:
        print_lines([str(problem) for problem in problems], {"c": "red"})
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        print(f"{count} in {args.cfg.file}")
    else:
        print(f"No problems found in {args.cfg.file}")
    return FOUND_SOMETHING if problems else OK
