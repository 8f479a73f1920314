"""From the command line to a trainer."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from kauldron import konfig
from kauldron.cli.config_loading import bad_input, load_config
from kauldron.cli.usage_errors import UsageError
from kauldron.konfig.config_sources import ConfigSource

if TYPE_CHECKING:
    from kauldron.train import Trainer

# Number of processes, as schedulers tell it.
_TASK_COUNTS = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "JAX_NUM_PROCESSES")


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of commands that run a job."""
    parser.add_argument(
        "--distributed",
        action="store_true",
        help="join the other processes of the job, where jax cannot tell by itself",
    )
    parser.add_argument(
        "--catch_post_mortem",
        action="store_true",
        help="open the debugger where an error was raised",
    )


def start_distributed(args: argparse.Namespace) -> None:
    """Join the processes of the job, before any device is touched."""
    is_cluster = any(int(os.environ.get(name) or 1) > 1 for name in _TASK_COUNTS)
    if args.distributed or is_cluster or "JAX_COORDINATOR_ADDRESS" in os.environ:
        import jax

        jax.distributed.initialize()


def load_trainer(source: ConfigSource) -> Trainer:
    """Build the trainer of a config file, or tell everything that is wrong with it."""
    return build_trainer(load_config(source, import_nothing=False), source)


def build_trainer(cfg: konfig.ConfigDict, source: ConfigSource) -> Trainer:
    """Build the trainer of a config that came from `source`."""
    problems = konfig.check(cfg)
    if problems:
        raise UsageError("\n".join(map(str, problems)))
    with bad_input(source):
        trainer = konfig.resolve(cfg)
    from kauldron.train import Trainer

    if not isinstance(trainer, Trainer):
        raise UsageError(
            f"{source.file} describes a {type(trainer).__name__}, not a "
            "`kd.train.Trainer`."
        )
    return trainer
