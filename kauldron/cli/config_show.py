"""`kauldron config show`."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib

from kauldron import konfig
from kauldron.cli.commands import OK
from kauldron.cli.config_loading import bad_input, load_config
from kauldron.cli.config_origin import ConfigOrigin
from kauldron.cli.sub_command import SubCommand
from kauldron.cli.terminal import print_python
from kauldron.cli.usage_errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the JSON form")
    form.add_argument(
        "--history", action="store_true", help="show where each field was set"
    )
    form.add_argument("--html", metavar="FILE", help="write a page to look at")


def run(args: argparse.Namespace) -> int:
    cfg = load_config(args.cfg, import_nothing=True)
    options = {"json": args.json, "history": args.history, "html": args.html}
    with bad_input(args.cfg):
        return Show(cfg, ConfigOrigin.of(args.cfg), **options)()


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

    def __call__(self) -> int:
        cfg = self.config
        if self.json:
            print(cfg.to_json(indent=2))
        elif self.html:
            _write_page(cfg, pathlib.Path(self.html))
        else:
            self.print_config_origin()
            print_python(
                konfig.to_text(cfg, history=True) if self.history else repr(cfg)
            )
        return OK


def _write_page(cfg: konfig.ConfigDict, file: pathlib.Path) -> None:
    page = f'<!DOCTYPE html><meta charset="utf-8"><title>Config</title>{konfig.to_html(cfg)}'
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--html={file}: {error}") from error
    print(f"Wrote {file}")
