"""`kauldron check`."""

from __future__ import annotations

import argparse

from kauldron import konfig
from kauldron.cli.commands import FOUND_SOMETHING, OK
from kauldron.cli.config_loading import load_config
from kauldron.cli.terminal import print_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace) -> int:
    _use_no_accelerator()
    cfg = load_config(args.cfg, import_nothing=False)
    problems = _find_problems(cfg)
    if problems:
        print_lines(problems, {"c": "red"})
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        print(f"{count} in {args.cfg.file}")
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


def _find_problems(cfg: konfig.ConfigDict) -> list[str]:
    """Build everything and evaluate the shapes of one step, on no device."""
    from kauldron import train
    from kauldron.cli.build_problems import build_what_can_be
    from kauldron.cli.step_problems import find_step_problems

    build = build_what_can_be(cfg)
    trainer, problems = build.trainer, build.problems.messages
    if trainer is None:
        return problems
    if not isinstance(trainer, train.Trainer):
        if problems:
            return problems
        return [f"The config describes a {type(trainer).__name__}, not a Trainer."]
    return problems + find_step_problems(cfg, trainer, left_out=build.left_out)
