"""`kauldron config resolve`."""

from __future__ import annotations

import argparse

from kauldron import konfig
from kauldron.cli.commands import OK
from kauldron.cli.config_loading import bad_input, load_config
from kauldron.cli.terminal import print_python


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--verbose",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="print what was built (default)",
    )


def run(args: argparse.Namespace) -> int:
    cfg = load_config(args.cfg, import_nothing=False)
    with bad_input(args.cfg):
        built = konfig.resolve(cfg)
    if args.verbose:
        print_python(repr(built))
    print(f"{args.cfg.file} resolves to a {type(built).__name__}.")
    return OK
