"""`kauldron eval`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kauldron import konfig, kontext
from kauldron.cli.command_table import OK, Implementation
from kauldron.cli.job import (
    add_job_arguments,
    ending_with_the_others,
    post_mortem,
    print_closing_table,
    start_job,
    without_traceback,
)
from kauldron.cli.loading import bad_input, build_trainer, load_config
from kauldron.cli.terminal import UsageError
from kauldron.errors import message_with_notes
from kauldron.konfig.overrides.config_files import ConfigSource

if TYPE_CHECKING:
    from kauldron.train import Trainer

_NO_GROUPS = "No evaluator of this config runs in a process of its own."


class Eval(Implementation):
    """Evaluate the checkpoints of a run as they appear, in another process."""

    needs_configs = False

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--workdir",
            type=os.path.expanduser,  # after an equals sign, shells leave `~` alone
            help="folder of a run, whose own config is used; instead of --cfg=config.py "
            "--cfg.workdir=...",
        )
        parser.add_argument(
            "--eval_names",
            help="evaluators or job groups to run (comma-separated); not needed if there is "
            "only one process to start",
        )
        parser.add_argument(
            "--list",
            action="store_true",
            help="list the processes that the config needs, with the command for each",
        )
        add_job_arguments(parser)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        source = with_config_of_run(args.cfg, args.workdir)
        if args.list:
            cfg = load_config(source, import_nothing=True)
            _print_groups(cfg, args)
            return OK
        start_job(args)
        cfg = load_config(source, import_nothing=False)
        if args.workdir:
            cfg.workdir = args.workdir
        trainer = build_trainer(cfg, source)
        evaluate(trainer, args, source)
        return OK


def with_config_of_run(source: ConfigSource, workdir: str | None) -> ConfigSource:
    """Take the config that the run in a folder has saved, unless one is given."""
    if workdir is None and source.file is None:
        raise UsageError("Which run? Give --workdir=path/to/run, or --cfg=config.py.")
    if workdir is None or source.file is not None:
        return source
    path = os.path.join(workdir, "config.json")
    if not os.path.isfile(path):
        found = sorted(os.listdir(workdir)) if os.path.isdir(workdir) else None
        content = (
            "there is no such folder"
            if found is None
            else f"it holds {', '.join(found[:20]) or 'nothing'}"
        )
        raise UsageError(
            f"{workdir} is not the folder of a run: it has no config.json ({content}). "
            "Training writes it when it starts; --cfg=config.py works before that."
        )
    return dataclasses.replace(source, file=path)


def evaluate(trainer: Trainer, args: argparse.Namespace, source: ConfigSource) -> None:
    """Run evaluators on checkpoints, until the run that writes them is complete.

    Without `--eval_names`, all of an evaluation of an earlier run, or the only group.
    """
    from kauldron.evals import standalone
    from kauldron.train import trainer_fields

    with bad_input(source):
        names = split_names(args.eval_names) or _default_names(trainer)
        evaluators = trainer_fields.select_evaluators(trainer, names)
        standalone.check(trainer, evaluators)
    if str(trainer.workdir or ".") == ".":
        raise UsageError("Which run? Give --workdir=path/to/run.")
    with (
        without_traceback(TimeoutError, show_traceback=args.traceback),
        checkpoint_errors(),
        ending_with_the_others(),
        post_mortem(is_on=args.catch_post_mortem),
    ):
        trainer.continuous_eval(names)
    print_closing_table(trainer)


def split_names(text: str | None) -> list[str]:
    """Return the names in a text, which are separated by commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _default_names(trainer: Trainer) -> list[str]:
    if trainer.setup.eval_only:
        if not trainer.evals:
            raise ValueError(
                "This config evaluates an earlier run, but has no evaluators: set "
                "`cfg.evals`."
            )
        return list(trainer.evals)
    from kauldron.evals.run_strategies import job_groups

    groups = job_groups({name: e.run for name, e in trainer.evals.items()})
    if not groups:
        raise ValueError(_NO_GROUPS)
    if len(groups) > 1:
        raise ValueError(
            f"Which evaluators? Give --eval_names, one of: {', '.join(groups)}."
        )
    return next(iter(groups.values()))


@contextlib.contextmanager
def checkpoint_errors() -> Iterator[None]:
    """Report missing and unsuitable checkpoints and keys without a traceback."""
    from kauldron import ckpts

    try:
        yield
    except (
        FileNotFoundError,
        ckpts.StructureMismatch,
        kontext.MissingKeysError,
    ) as error:
        raise UsageError(message_with_notes(error)) from error


#
# --list
#


def _print_groups(cfg: konfig.ConfigDict, args: argparse.Namespace) -> None:
    from kauldron.evals.run_strategies import job_groups

    strategies = {
        name: konfig.resolve(node.run)
        for name, node in (cfg.get("evals") or {}).items()
        if "run" in node
    }
    setup = cfg.get("setup") or {}
    if setup.get("eval_only", False):
        _print_group("all in one process", list(strategies), _command(args))
        return
    groups = job_groups(strategies)
    for group, names in groups.items():
        _print_group(group, names, [*_command(args), f"--eval_names={group}"])
    if not groups:
        print(_NO_GROUPS)


def _print_group(group: str, names: Sequence[str], command: list[str]) -> None:
    print(f"{group}: {', '.join(names)}\n  {shlex.join(command)}")


def _command(args: argparse.Namespace) -> list[str]:
    where = [f"--workdir={args.workdir}"] if args.workdir else []
    return ["kauldron", "eval", *where, *args.cfg.as_flags()]
