"""`kauldron config diff`."""

from __future__ import annotations

import argparse

from kauldron import konfig
from kauldron.cli.commands import FOUND_SOMETHING, OK
from kauldron.cli.config_loading import load_config
from kauldron.cli.terminal import print_json, print_lines
from kauldron.cli.usage_errors import UsageError
from kauldron.konfig.config_files import is_saved_config, split_argument
from kauldron.konfig.override_values import format_value
from kauldron.konfig.set_events import short_repr

_STYLES = {"~": "yellow", "+": "green", "-": "red"}


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
        help="print the overrides that turn --cfg into --other",
    )


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
        print_lines(_as_flags(difference), {})
    elif difference:
        print_lines(str(difference).split("\n"), _STYLES)
    return FOUND_SOMETHING if difference else OK


def _as_flags(difference: konfig.ConfigDiff) -> list[str]:
    try:
        overrides = difference.as_overrides()
        return [f"--cfg.{path}={format_value(v)}" for path, v in overrides.items()]
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
