"""`kauldron data element_spec`."""

from __future__ import annotations

import argparse
import dataclasses

from kauldron.cli.commands import OK
from kauldron.cli.config_loading import bad_input, load_config
from kauldron.cli.config_origin import ConfigOrigin
from kauldron.cli.dataset_loading import add_dataset_arguments, resolve_dataset
from kauldron.cli.sub_command import SubCommand
from kauldron.cli.terminal import print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(args: argparse.Namespace) -> int:
    cfg = load_config(args.cfg, import_nothing=False)
    options = {"ds_path": args.ds_path, "json": args.json}
    with bad_input(args.cfg):
        return ElementSpec(cfg, ConfigOrigin.of(args.cfg), **options)()


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
