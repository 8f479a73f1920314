"""`kauldron run ...`: what a train step is made of, without training."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

from kauldron.cli.command_table import OK
from kauldron.cli.commands.train import Train as Train
from kauldron.cli.loading import SubCommand, load_config
from kauldron.cli.terminal import print_table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _OnTrainer(SubCommand):
    """A command without options that works on the trainer."""

    @classmethod
    def run(cls, args: argparse.Namespace) -> int:
        """Run the command if the trainer can be built; otherwise say why it cannot."""
        cfg = load_config(args.cfg, import_nothing=False)
        return cls.with_trainer(cfg, args.cfg)() or OK


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class EvalShape(_OnTrainer):
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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Memory(_OnTrainer):
    """Compile a train step and print what it needs of each device's memory."""

    def __call__(self) -> int:
        from kauldron.inspect.model_overview import lower_trainstep
        from kauldron.train.trainer_fields import batch_specs

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
    """Return what the compiler says, by name."""
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


def print_spec(obj: Any) -> None:
    """Print path and shape of everything in a tree, one line each.

    Example:
      >>> import numpy as np
      >>> print_spec({"x": np.zeros((2, 3), np.float32)})  # doctest: +NORMALIZE_WHITESPACE
      x    f32[2 3]
    """
    from kauldron import kontext
    from kauldron.inspect.specs import json_spec_like

    rows = [
        (path, str(json_spec_like(leaf)))
        for path, leaf in kontext.flatten_with_path(obj).items()
    ]
    print_table(rows, header=("path", "spec"))


@contextlib.contextmanager
def timed(action: str) -> Iterator[None]:
    """Print to stderr what is being done, and how long it took."""
    print(f"{action} ...", file=sys.stderr, flush=True)
    start = time.monotonic()
    yield
    print(f"{action}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
