"""What a run came to: final values, and where everything is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron import writers
from kauldron.cli.terminal import print_table

if TYPE_CHECKING:
    from kauldron.train import Trainer


def print_closing_table(trainer: Trainer) -> None:
    """Print the newest losses and metrics of each collection, and the workdir."""
    from kauldron.utils import status

    if not status.is_lead_host:
        return
    rows = []
    for collection in ("train", *trainer.evals):
        lines = writers.read_scalars(trainer.workdir / collection)
        if not lines:
            continue
        for name, value in lines[-1]["values"].items():
            if name.startswith(("losses/", "metrics/")):
                rows.append((collection, str(lines[-1]["step"]), name, _number(value)))
    if rows:
        print_table(rows, header=("collection", "step", "value", ""))
    print(f"Everything is in {trainer.workdir}")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"
