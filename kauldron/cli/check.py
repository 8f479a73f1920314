"""`kauldron check`."""

from __future__ import annotations

import argparse

from kauldron import konfig
from kauldron.cli.commands import FOUND_SOMETHING, OK
from kauldron.cli.config_loading import load_config
from kauldron.cli.error_descriptions import message_with_notes
from kauldron.cli.terminal import print_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace) -> int:
    cfg = load_config(args.cfg, import_nothing=False)
    problems = [str(problem) for problem in konfig.check(cfg)]
    if not problems:
        problems = _problems_of_shapes(cfg)
    if problems:
        print_lines(problems, {"c": "red"})
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        print(f"{count} in {args.cfg.file}")
        return FOUND_SOMETHING
    print(
        f"No problems found in {args.cfg.file}: one train step and each evaluation fit."
    )
    return OK


def _problems_of_shapes(cfg: konfig.ConfigDict) -> list[str]:
    """Build everything and evaluate the shapes of one step, on no device."""
    from kauldron import train
    from kauldron.cli.step_problems import find_step_problems

    try:
        trainer = konfig.resolve(cfg)
    except Exception as error:
        return [message_with_notes(error)]
    if not isinstance(trainer, train.Trainer):
        return [f"The config describes a {type(trainer).__name__}, not a Trainer."]
    return find_step_problems(cfg, trainer)
