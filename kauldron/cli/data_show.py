"""`kauldron data show`."""

from __future__ import annotations

import argparse
from typing import Any

from kauldron.cli.commands import OK
from kauldron.cli.config_loading import bad_input, load_config
from kauldron.cli.dataset_loading import add_dataset_arguments, resolve_dataset
from kauldron.cli.terminal import print_table

_COLUMNS = ("Dtype", "Shape", "Min", "Max", "Mean", "StdDev")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset_arguments(parser)
    parser.add_argument(
        "--num_batches", type=int, default=1, help="how many batches (default: 1)"
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write a page with the pictures of the batches"
    )


def run(args: argparse.Namespace) -> int:
    cfg = load_config(args.cfg, import_nothing=False)
    with bad_input(args.cfg):
        batches = list(resolve_dataset(cfg, args.ds_path).take(args.num_batches))
    for index, batch in enumerate(batches):
        print(f"batch {index}")
        print_table(_rows(batch), header=("path", *map(str.lower, _COLUMNS)))
    if args.html:
        _write_page(batches, args.html)
    return OK


def _rows(batch: Any) -> list[tuple[str, ...]]:
    from kauldron import kontext
    from kauldron.inspect.batches import describe_array

    rows = []
    for path, leaf in kontext.flatten_with_path(batch).items():
        values = describe_array(path, leaf)
        rows.append((path, *(_cell(values[name]) for name in _COLUMNS)))
    return rows


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _write_page(batches: list[Any], file: str) -> None:
    from kauldron.inspect.batches import batch_view
    from kauldron.inspect.views import View

    views = [batch_view(batch) for batch in batches]
    page = "".join(view.html for view in views)
    View(html=page, text="", title="Batches").save(file)
    print(f"Wrote {file}")
