"""An Orbax handler for positions in data: one JSON file per process."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from kauldron.data.processes import current_share

_FILE = re.compile(r"process_(\d+)-of-(\d+)\.json")


class PyGrainCheckpointHandler(ocp.CheckpointHandler):
    """Stores the state of an iterator as `process_{p}-of-{P}.json`."""

    def save(self, directory: epath.Path, args: PyGrainCheckpointSave) -> None:
        share = current_share()
        name = f"process_{share.index}-of-{share.count}.json"
        (epath.Path(directory) / name).write_text(json.dumps(args.state, indent=2))

    def restore(
        self, directory: epath.Path, args: PyGrainCheckpointRestore | None = None
    ) -> dict[str, Any]:
        """The state for this process, also one that other processes wrote.

        Raises:
          ValueError: The directory holds no state.
        """
        del args
        directory = epath.Path(directory)
        share = current_share()
        files = {
            (int(match[1]), int(match[2])): path
            for path in directory.iterdir()
            if (match := _FILE.fullmatch(path.name))
        }
        if not files:
            found = sorted(path.name for path in directory.iterdir())
            raise ValueError(
                f"No position of a data iterator in {directory}: expected"
                f" process_{share.index}-of-{share.count}.json; found {found}."
            )
        key = (share.index, share.count)
        # All processes of a dense stream are in step, so any of their files will do.
        (_, count), path = (key, files[key]) if key in files else min(files.items())
        try:
            state = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}") from error
        return {"process_count": count, **state}


@ocp.args.register_with_handler(PyGrainCheckpointHandler, for_save=True)
@dataclasses.dataclass
class PyGrainCheckpointSave(ocp.args.CheckpointArgs):
    """The state to write.

    Attributes:
      state: What `get_state` gave.
    """

    state: Mapping[str, Any]


@ocp.args.register_with_handler(PyGrainCheckpointHandler, for_restore=True)
@dataclasses.dataclass
class PyGrainCheckpointRestore(ocp.args.CheckpointArgs):
    """Nothing to say: the state is read as it is."""
