"""`kauldron test`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from kauldron.cli.command_table import OK, Implementation
from kauldron.cli.commands.eval import (
    checkpoint_errors,
    split_names,
    with_config_of_run,
)
from kauldron.cli.job import add_job_arguments, post_mortem, start_job
from kauldron.cli.loading import bad_input, build_trainer, load_config
from kauldron.cli.terminal import UsageError, print_json, print_table


class Test(Implementation):
    """Evaluate a checkpoint of a run again, and print the values."""

    needs_configs = False

    __test__ = False  # not one of pytest's

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("workdir", help="folder of the run")
        parser.add_argument(
            "--step",
            default="last",
            help="which checkpoint: best, last (default) or a step",
        )
        parser.add_argument(
            "--eval",
            help="evaluators or job groups to run (comma-separated; default: all)",
        )
        parser.add_argument("--json", action="store_true", help="print a JSON object")
        parser.add_argument(
            "--write_to",
            metavar="FOLDER",
            help="write values and summaries to this folder; by default nothing is "
            "written, and never to the logs of the run",
        )
        add_job_arguments(parser)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        step = _step(args.step)
        source = with_config_of_run(args.cfg, args.workdir)
        start_job(args)
        cfg = load_config(source, import_nothing=False)
        cfg.workdir = args.workdir
        trainer = build_trainer(cfg, source)
        from kauldron import status
        from kauldron.train import trainer_fields
        from kauldron.train.run import saved_states

        with bad_input(source):
            number = saved_states.find_step(trainer.checkpointer, step)
            names = split_names(args.eval) or list(trainer.evals)
            names = list(trainer_fields.select_evaluators(trainer, names))
        with checkpoint_errors(), post_mortem(is_on=args.catch_post_mortem):
            results = trainer.test(names, step=number, write_to=args.write_to)
        if not status.is_lead_host:
            return OK
        values = {name: saved_states.numbers(out) for name, out in results.items()}
        if args.json:
            print_json({"workdir": args.workdir, "step": number, "values": values})
            return OK
        rows = [
            (name, str(number), key, f"{value:.5g}")
            for name, found in values.items()
            for key, value in found.items()
        ]
        print_table(rows, header=("evaluator", "step", "value", ""))
        if sys.stdout.isatty():
            _print_texts(results, number)
        return OK


def _print_texts(results: Mapping[str, Any], step: int) -> None:
    """Print texts of summaries, such as confusion matrices."""
    from rich.console import Console

    from kauldron.train.run.terminal.summaries import titled_summary

    console = Console(highlight=False)
    for collection, result in results.items():
        for name, text in result.summary_values.items():
            if isinstance(text, str):
                lines = titled_summary(
                    text,
                    collection=collection,
                    name=name,
                    step=step,
                    width=console.width,
                )
                console.print(*lines, sep="\n", no_wrap=True, overflow="ellipsis")


def _step(text: str) -> Any:
    if text in ("best", "last"):
        return text
    if not text.isdigit():
        raise UsageError(f"--step must be best, last or a step, got {text!r}.")
    return int(text)
