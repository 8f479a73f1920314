"""From the command line to one of the config's data sets."""

from __future__ import annotations

import argparse
from typing import Any

from kauldron import konfig


def add_dataset_arguments(parser: argparse.ArgumentParser) -> None:
    """Which data set of the config."""
    parser.add_argument(
        "--ds_path",
        default="train_ds",
        help="path of the data set in the config, such as evals.test.ds (default: "
        "train_ds)",
    )


def resolve_dataset(cfg: konfig.ConfigDict, path: str) -> Any:
    """Build the data set alone: neither the model nor the trainer.

    Raises:
      KeyError: There is nothing at that path.
      ValueError: What is there is no data set.
    """
    node = konfig.get_by_path(cfg, path)
    if node is None:
        raise ValueError(f"cfg.{path} is not set.")
    dataset = konfig.resolve(node)
    if not hasattr(dataset, "element_spec"):
        raise ValueError(
            f"cfg.{path} is no data set: it describes a {type(dataset).__name__}."
        )
    return dataset
