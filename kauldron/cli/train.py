"""`kauldron train`."""

from __future__ import annotations

import argparse

from kauldron.cli.commands import OK
from kauldron.cli.trainer_loading import (
    add_job_arguments,
    load_trainer,
    start_distributed,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--eval_names",
        help="evaluate these evaluators or job groups (comma-separated) on the "
        "checkpoints of the run, instead of training",
    )
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> int:
    start_distributed(args)
    trainer = load_trainer(args.cfg)
    if args.eval_names or trainer.setup.eval_only:
        from kauldron.cli.eval import evaluate

        evaluate(trainer, args.eval_names, args.cfg)
        return OK
    trainer.train()
    from kauldron.cli.closing_table import print_closing_table

    print_closing_table(trainer)
    return OK
