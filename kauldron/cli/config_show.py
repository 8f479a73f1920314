"""`kauldron config show`."""

from __future__ import annotations

import argparse
import pathlib

from kauldron import konfig
from kauldron.cli.commands import OK
from kauldron.cli.config_loading import bad_input, load_config
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
    if args.json:
        with bad_input(args.cfg):
            text = cfg.to_json(indent=2)
        print(text)
        return OK
    if args.html:
        return _write_page(cfg, pathlib.Path(args.html))
    origin = "\n".join(f"# {flag}" for flag in args.cfg.as_flags())
    text = konfig.to_text(cfg, history=True) if args.history else repr(cfg)
    print_python(f"{origin}\n{text}")
    return OK


def _write_page(cfg: konfig.ConfigDict, file: pathlib.Path) -> int:
    page = f'<!DOCTYPE html><meta charset="utf-8"><title>Config</title>{konfig.to_html(cfg)}'
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--html={file}: {error}") from error
    print(f"Wrote {file}")
    return OK
