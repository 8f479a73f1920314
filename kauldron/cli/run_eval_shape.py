"""`kauldron run eval_shape`."""

from __future__ import annotations

import argparse
import dataclasses

from kauldron.cli.commands import OK
from kauldron.cli.spec_printing import print_spec, timed
from kauldron.cli.sub_command import SubCommand
from kauldron.cli.trainer_loading import run_on_trainer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace) -> int:
    return run_on_trainer(EvalShape, args.cfg)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class EvalShape(SubCommand):
    """Print the shapes of the state and of everything in a train step."""

    def __call__(self) -> int:
        self.print_config_origin()
        with timed("Shapes of the initial state"):
            state = self.trainer.state_specs
        with timed("Shapes of a train step"):
            context = self.trainer.context_specs
        print("\nState")
        print_spec(state)
        print("\nContext")
        print_spec(context)
        return OK
