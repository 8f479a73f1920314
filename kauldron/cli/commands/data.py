"""`kauldron data ...`: look at what a data set yields, and at what it costs."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from kauldron import konfig
from kauldron.cli.command_table import OK, Implementation
from kauldron.cli.loading import SubCommand, bad_input, load_config
from kauldron.cli.terminal import print_json, print_table, write_page
from kauldron.errors import a_type

_COLUMNS = ("Dtype", "Shape", "Min", "Max", "Mean", "StdDev")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ElementSpec(SubCommand):
    """Print path, dtype and shape of what a data set yields.

    Attributes:
      ds_path: Path of the data set in the config.
      json: Whether to print a JSON object.
    """

    ds_path: str = "train_ds"
    json: bool = False

    def __call__(self) -> int:
        from kauldron import kontext

        dataset = resolve_dataset(self.config, self.ds_path)
        spec = kontext.flatten_with_path(dataset.element_spec)
        if self.json:
            print_json(
                {
                    path: {"dtype": str(leaf.dtype), "shape": list(leaf.shape)}
                    for path, leaf in spec.items()
                }
            )
            return OK
        rows = [
            (path, str(leaf.dtype), str(tuple(leaf.shape)))
            for path, leaf in spec.items()
        ]
        print_table(rows, header=("path", "dtype", "shape"))
        return OK

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_dataset_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print a JSON object")


class Show(Implementation):
    """Print statistics of the first batches of a data set."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_dataset_arguments(parser)
        parser.add_argument(
            "--num_batches", type=int, default=1, help="how many batches (default: 1)"
        )
        parser.add_argument(
            "--html",
            metavar="FILE",
            help="write a page with the pictures of the batches",
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        cfg = load_config(args.cfg, import_nothing=False)
        with bad_input(args.cfg):
            batches = list(resolve_dataset(cfg, args.ds_path).take(args.num_batches))
        for index, batch in enumerate(batches):
            print(f"batch {index}")
            print_table(_rows(batch), header=("path", *map(str.lower, _COLUMNS)))
        if args.html:
            from kauldron.inspect.batches import batch_view

            page = "".join(batch_view(batch).html for batch in batches)
            write_page(args.html, page, title="Batches")
        return OK


class Profile(Implementation):
    """Print what a record of a data set costs, stage by stage."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_dataset_arguments(parser)
        parser.add_argument(
            "--seconds",
            type=float,
            default=2.0,
            help="for how long to measure (default: 2)",
        )
        parser.add_argument("--json", action="store_true", help="print a JSON object")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        cfg = load_config(args.cfg, import_nothing=False)
        with bad_input(args.cfg):
            dataset = resolve_dataset(cfg, args.ds_path)
            if not hasattr(dataset, "profile"):
                raise TypeError(
                    f"cfg.{args.ds_path} is {a_type(dataset)}: only pipelines of"
                    " kd.data.py can be profiled."
                )
            costs = dataset.profile(seconds=args.seconds)
        if args.json:
            print_json(dataclasses.asdict(costs) | {"builders": str(costs.builders)})
            return OK
        total = costs.building.total
        rows = [
            (
                name,
                *(f"{s * 1e3:.4f}" for s in (cost.total, cost.computing, cost.waiting)),
                f"{cost.total / total:.0%}",
            )
            for name, cost in costs.stages.items()
        ]
        header = ("stage", "ms per record", "computing", "waiting", "of building")
        print_table(rows, header=header)
        print(f"One builder: {1 / total:.0f} records/s. Two threads: ", end="")
        print(f"{costs.thread_speedup:.2f} times as fast.")
        print(f"num_workers='auto' means {costs.builders}.")
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


def add_dataset_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a data set of the config."""
    parser.add_argument(
        "--ds_path",
        default="train_ds",
        help="path of the data set in the config, such as evals.test.ds (default: "
        "train_ds)",
    )


def resolve_dataset(cfg: konfig.ConfigDict, path: str) -> Any:
    """Build the data set alone: neither the model nor the trainer."""
    node = konfig.get_by_path(cfg, path)
    if node is None:
        raise ValueError(f"cfg.{path} is not set.")
    dataset = konfig.resolve(node)
    if not hasattr(dataset, "element_spec"):
        raise ValueError(
            f"cfg.{path} is not a data set: it describes {a_type(dataset)}."
        )
    return dataset
