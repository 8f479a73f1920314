"""`kauldron config resolve`."""

from __future__ import annotations

import argparse
import dataclasses

from kauldron.cli.commands import OK
from kauldron.cli.config_loading import bad_input, load_config
from kauldron.cli.config_origin import ConfigOrigin
from kauldron.cli.sub_command import SubCommand
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
        return Resolve(cfg, ConfigOrigin.of(args.cfg), verbose=args.verbose)()


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
        print(f"{name or 'The config'} resolves to a {type(built).__name__}.")
        return OK
