"""`kauldron train`."""

from __future__ import annotations

import argparse

from kauldron.cli.commands import BAD_INPUT, OK
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
    names = args.eval_names.split(",") if args.eval_names else None
    if names is None and trainer.setup.eval_only:
        names = list(trainer.evals)
        if not names:
            print("This config evaluates an earlier run, but has no evaluators.")
            return BAD_INPUT
    if names is not None:
        trainer.continuous_eval(names)
    else:
        trainer.train()
    from kauldron.cli.closing_table import print_closing_table

    print_closing_table(trainer)
    return OK
