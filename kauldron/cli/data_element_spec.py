"""`kauldron data element_spec`."""

from __future__ import annotations

import argparse

from kauldron.cli.commands import OK
from kauldron.cli.dataset_loading import add_dataset_arguments, load_dataset
from kauldron.cli.terminal import print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(args: argparse.Namespace) -> int:
    from kauldron import kontext

    spec = kontext.flatten_with_path(load_dataset(args).element_spec)
    rows = [
        (path, str(leaf.dtype), str(tuple(leaf.shape))) for path, leaf in spec.items()
    ]
    if args.json:
        print_json(
            {
                path: {"dtype": dtype, "shape": list(spec[path].shape)}
                for path, dtype, _ in rows
            }
        )
    else:
        print_table(rows, header=("path", "dtype", "shape"))
    return OK
