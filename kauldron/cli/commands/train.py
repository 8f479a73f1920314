"""`kauldron train`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
from typing import TYPE_CHECKING

from kauldron import konfig
from kauldron.cli.command_table import FAILED, OK
from kauldron.cli.commands.check import Problems
from kauldron.cli.job import (
    add_job_arguments,
    ending_with_the_others,
    post_mortem,
    print_closing_table,
    start_job,
    without_traceback,
)
from kauldron.cli.loading import ConfigOrigin, SubCommand, load_config
from kauldron.cli.terminal import UsageError
from kauldron.files import InUseError

if TYPE_CHECKING:
    from kauldron.train import Trainer


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Train(SubCommand):
    """Train, and print the last values."""

    def __call__(self) -> int:
        self.trainer.train()
        is_complete = _is_complete(self.trainer)
        print_closing_table(self.trainer, is_complete=is_complete)
        return OK if is_complete else FAILED

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--eval_names",
            help="evaluate these evaluators or job groups (comma-separated) on the "
            "checkpoints of the run, instead of training",
        )
        add_job_arguments(parser)

    @classmethod
    def run(cls, args: argparse.Namespace) -> int:
        start_job(args)
        cfg = load_config(args.cfg, import_nothing=False)
        if ConfigOrigin.of(args.cfg).patches:
            _use_another_workdir(cfg)
        command = cls.with_trainer(cfg, args.cfg)
        trainer = command.trainer
        if str(trainer.workdir or ".") == ".":
            raise UsageError("Where should the run go? Give --cfg.workdir=path/to/run.")
        if args.eval_names or trainer.setup.eval_only:
            from kauldron.cli.commands.eval import evaluate

            evaluate(trainer, args, args.cfg)
            return OK
        with post_mortem(is_on=args.catch_post_mortem):
            if not args.catch_post_mortem:  # the debugger needs what `train` raises
                _refuse_problems(cfg, trainer)
            _check_workdir(trainer)
            with (
                without_traceback(*_expected_errors(), show_traceback=args.traceback),
                ending_with_the_others(),
            ):
                return command()


def _expected_errors() -> tuple[type[Exception], ...]:
    """Return the errors that end a run although the code is right.

    The checkpoints are gone, the data is too short, a loss is not finite, or another
    job runs in the folder.
    """
    from kauldron.train.run.lifecycle import CheckpointsGoneError, DataEndedError

    return CheckpointsGoneError, DataEndedError, FloatingPointError, InUseError


def _is_complete(trainer: Trainer) -> bool:
    """Return whether what was trained is on disk; it is not if saves have failed."""
    from kauldron import status
    from kauldron.train.run.workdir_files import read_train_complete

    return not status.is_lead_host or read_train_complete(trainer.workdir) is not None


def _use_another_workdir(cfg: konfig.ConfigDict) -> None:
    """Keep a config that was patched for a quick try away from real runs."""
    workdir = cfg.get("workdir")
    if workdir is None:
        cfg.workdir = tempfile.mkdtemp(prefix="kauldron-")
    elif os.path.exists(os.path.join(os.path.expanduser(workdir), "run_info.json")):
        raise UsageError(
            f"There is a run in {workdir}, which a patched config would overwrite. Give "
            "another --cfg.workdir, or none for a temporary one."
        )


def _refuse_problems(cfg: konfig.ConfigDict, trainer: Trainer) -> None:
    """Report all that `train` would refuse, with the lines and flags that set it."""
    problems = Problems(cfg)
    problems.add_all_of(trainer)
    if problems.messages:
        raise UsageError("\n".join(problems.messages)) from problems.cause


def _check_workdir(trainer: Trainer) -> None:
    from kauldron import status
    from kauldron.train.run.workdir_files import make_writable

    try:
        if status.is_lead_host:
            make_writable(trainer.workdir)
    except OSError as error:
        raise UsageError(str(error)) from error
