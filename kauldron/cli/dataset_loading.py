"""From the command line to one of the config's data sets."""

from __future__ import annotations

import argparse
from typing import Any

from kauldron import konfig, kontext
from kauldron.cli.config_loading import bad_input, load_config
from kauldron.cli.usage_errors import UsageError


def add_dataset_arguments(parser: argparse.ArgumentParser) -> None:
    """Which data set of the config."""
    parser.add_argument(
        "--ds_path",
        default="train_ds",
        help="path of the data set in the config (default: train_ds)",
    )


def load_dataset(args: argparse.Namespace) -> Any:
    """Build the data set alone: neither the model nor the trainer."""
    cfg = load_config(args.cfg, import_nothing=False)
    with bad_input(args.cfg):
        node = kontext.get_by_path(cfg, args.ds_path)
        if node is None:
            raise UsageError(f"cfg.{args.ds_path} is not set.")
        return konfig.resolve(node)
