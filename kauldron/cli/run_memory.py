"""`kauldron run memory`."""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import Any

from kauldron.cli.commands import OK
from kauldron.cli.spec_printing import timed
from kauldron.cli.sub_command import SubCommand
from kauldron.cli.terminal import print_table
from kauldron.cli.trainer_loading import run_on_trainer

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace) -> int:
    return run_on_trainer(Memory, args.cfg)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Memory(SubCommand):
    """Compile a train step and print what it needs of each device's memory."""

    def __call__(self) -> int:
        from kauldron.inspect.model_overview import batch_specs, lower_trainstep

        with timed("Compiling the train step"):
            lowered = lower_trainstep(
                self.trainer,
                return_losses=True,
                return_metrics=True,
                return_summaries=True,
            )
            analysis = lowered.compile().memory_analysis()
        state = self.trainer.state_specs
        sizes = {
            "parameters": _bytes_per_device(state.params),
            "optimizer state": _bytes_per_device(state.opt_state),
            "collections": _bytes_per_device(state.collections),
            "batch": _bytes_per_device(batch_specs(self.trainer)),
            **_compiled_sizes(analysis),
        }
        rows = [(name, _readable(size), str(size)) for name, size in sizes.items()]
        print_table(rows, header=("per device", "", "bytes"))
        if analysis is None:
            print("This backend does not tell what the compiled step needs.")
        return OK


def _compiled_sizes(analysis: Any) -> dict[str, int]:
    """What the compiler says, by name."""
    if analysis is None:
        return {}
    inputs = analysis.argument_size_in_bytes
    outputs = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    temporary = analysis.temp_size_in_bytes
    return {
        "inputs of the step": inputs,
        "outputs in memory of their own": outputs,
        "temporary": temporary,
        "program": analysis.generated_code_size_in_bytes,
        "total": inputs + outputs + temporary + analysis.generated_code_size_in_bytes,
    }


def _bytes_per_device(specs: Any) -> int:
    import jax

    def size(spec: Any) -> int:
        sharding = spec.sharding
        shape = spec.shape if sharding is None else sharding.shard_shape(spec.shape)
        return math.prod(shape) * spec.dtype.itemsize

    return sum(map(size, jax.tree.leaves(specs)))


def _readable(size: float) -> str:
    """
    >>> _readable(1536)
    '1.5 KiB'
    """
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.4g} {_UNITS[unit]}"
