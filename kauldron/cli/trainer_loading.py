"""From the command line to a trainer."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from kauldron import konfig
from kauldron.cli import job_processes
from kauldron.cli.commands import OK
from kauldron.cli.config_loading import bad_input, load_config
from kauldron.cli.config_origin import ConfigOrigin
from kauldron.cli.sub_command import SubCommand
from kauldron.cli.usage_errors import UsageError
from kauldron.konfig.config_sources import ConfigSource
from kauldron.utils.error_context import message_with_notes

if TYPE_CHECKING:
    from kauldron.train import Trainer

_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of commands that run a job."""
    parser.add_argument(
        "--distributed",
        **_SWITCH,
        help="join the other processes of the job, where jax cannot tell by itself",
    )
    parser.add_argument(
        "--catch_post_mortem",
        **_SWITCH,
        help="open the debugger where an error was raised",
    )


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _TRUTHS[text.lower()]


# `--name`, and `--name=true` as launchers write it.
_SWITCH: dict[str, Any] = {
    "nargs": "?",
    "const": True,
    "default": False,
    "type": _truth,
    "metavar": "BOOL",
}


def start_distributed(args: argparse.Namespace) -> None:
    """Join the processes of the job, and open the port that the launcher asks for."""
    job_processes.start_distributed(force=args.distributed)
    port = os.environ.get("KXM_PROFILER_PORT")
    if port:
        import jax

        jax.profiler.start_server(int(port))


def load_trainer(source: ConfigSource) -> Trainer:
    """Build the trainer of a config file, or tell everything that is wrong with it."""
    return build_trainer(load_config(source, import_nothing=False), source)


def build_trainer(cfg: konfig.ConfigDict, source: ConfigSource) -> Trainer:
    """Build the trainer of a config that came from `source`."""
    problems = konfig.check(cfg)
    if problems:
        raise UsageError("\n".join(map(str, problems)))
    with bad_input(source):
        trainer = _resolve(cfg)
    from kauldron.train import Trainer

    if not isinstance(trainer, Trainer):
        raise UsageError(
            f"{source.file} describes a {type(trainer).__name__}, not a "
            "`kd.train.Trainer`."
        )
    return trainer


def _resolve(cfg: konfig.ConfigDict) -> Any:
    try:
        return konfig.resolve(cfg)
    except Exception as error:
        from kauldron.cli.build_problems import build_what_can_be

        problems = build_what_can_be(cfg).problems.messages
        if problems in ([], [message_with_notes(error)]):
            raise
        raise UsageError("\n".join(problems)) from error


def run_on_trainer(command: type[SubCommand], source: ConfigSource) -> int:
    """Run a command whose trainer can be built; else tell why it cannot."""
    cfg = load_config(source, import_nothing=False)
    made = command(cfg, ConfigOrigin.of(source))
    vars(made)["trainer"] = build_trainer(
        cfg, source
    )  # the value of the cached property
    return made() or OK
