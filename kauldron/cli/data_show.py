"""`kauldron data show`."""

from __future__ import annotations

import argparse
from typing import Any

from kauldron.cli.commands import OK
from kauldron.cli.dataset_loading import add_dataset_arguments, load_dataset
from kauldron.cli.terminal import print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset_arguments(parser)
    parser.add_argument(
        "--num_batches", type=int, default=1, help="how many batches (default: 1)"
    )


def run(args: argparse.Namespace) -> int:
    from kauldron import kontext

    for index, batch in enumerate(load_dataset(args).take(args.num_batches)):
        print(f"batch {index}")
        rows = [
            (path, *_describe(leaf))
            for path, leaf in kontext.flatten_with_path(batch).items()
        ]
        print_table(rows, header=("path", "dtype", "shape", "min", "max", "mean"))
    return OK


def _describe(leaf: Any) -> tuple[str, ...]:
    import numpy as np

    array = np.asarray(leaf)
    head = (str(array.dtype), str(array.shape))
    if array.dtype.kind not in "biuf" or not array.size:
        return (*head, "-", "-", f"{array.ravel()[:1]}")
    values = array.astype(np.float64)
    return (*head, f"{values.min():.4g}", f"{values.max():.4g}", f"{values.mean():.4g}")
