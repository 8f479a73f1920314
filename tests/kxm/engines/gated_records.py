"""Records that a training reads up to a point, and further once a file is there."""

import itertools
import os
import pathlib
import time

from tests.train import toy

_OPEN = 32  # records of each process before the gate


class GatedRecords:
    """The records of the toy problem.

    Args:
      gate: The file to wait for. Who waits writes `waits-<process>` in the folder of its
        work unit.
    """

    def __init__(self, gate):
        self.gate = pathlib.Path(gate)
        self.arrays = toy.make_arrays()
        self.numbers = itertools.count()

    def __len__(self):
        return toy.NUM_RECORDS

    def __getitem__(self, index):
        if next(self.numbers) >= _OPEN and not self.gate.exists():
            rank = os.environ.get("KXM_PROCESS_ID", "0")
            pathlib.Path(os.environ["KXM_WU_DIR"], f"waits-{rank}").touch()
            while not self.gate.exists():
                time.sleep(0.02)
        return {name: values[index] for name, values in self.arrays.items()}
