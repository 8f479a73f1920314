"""`kauldron check`."""

from __future__ import annotations

import argparse

from kauldron import konfig
from kauldron.cli.commands import FOUND_SOMETHING, OK
from kauldron.cli.config_loading import load_config
from kauldron.cli.problems import Problems
from kauldron.cli.terminal import print_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace) -> int:
    _use_no_accelerator()
    cfg = load_config(args.cfg, import_nothing=False)
    problems = _find_problems(cfg)
    lines = [*problems.messages, *problems.warnings]
    if lines:
        print_lines(lines, {"c": "red", "w": "yellow"})
    if problems.messages:
        count = len(problems.messages)
        print(f"{count} problem{'s' if count > 1 else ''} in {args.cfg.file}")
        return FOUND_SOMETHING
    print(
        f"No problems found in {args.cfg.file}: one train step and each evaluation fit."
    )
    return OK


def _use_no_accelerator() -> None:
    """Shapes need no device: one that trains another run is left in peace."""
    import jax

    if not jax.config.jax_platforms:  # neither JAX_PLATFORMS nor --jax_platforms
        jax.config.update("jax_platforms", "cpu")


def _find_problems(cfg: konfig.ConfigDict) -> Problems:
    """Build everything and evaluate the shapes of one step, on no device."""
    from kauldron import train
    from kauldron.cli.build_problems import build_what_can_be

    build = build_what_can_be(cfg)
    trainer, problems = build.trainer, build.problems
    if isinstance(trainer, train.Trainer):
        problems.add_all_of(trainer, left_out=build.left_out)
    elif trainer is not None and not problems.messages:
        name = type(trainer).__name__
        problems.messages.append(f"The config describes a {name}, not a Trainer.")
    return problems
