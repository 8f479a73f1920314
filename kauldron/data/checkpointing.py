"""Orbax handlers for positions in data."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from kauldron.data.engine.batches import current_share
from kauldron.data.transforms.values import tf

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
        """Return the state for this process, also one that other processes wrote.

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
    """No options: the state is read as it is."""


class TFDataHandler(ocp.CheckpointHandler):
    """Stores a `tf.data.Iterator` as `process_{p}-of-{P}/tfdata*`."""

    def save(self, directory: epath.Path, args: TFDataArg) -> None:
        folder = self._folder(directory)
        folder.mkdir(parents=True, exist_ok=True)
        save_iterator(args.iterator, folder)

    def restore(self, directory: epath.Path, args: TFDataArg) -> Any:
        """Move the iterator in `args` to the saved position, and return it.

        Raises:
          ValueError: Nothing was saved for this process.
        """
        folder = self._folder(directory)
        if not folder.exists():
            found = sorted(path.name for path in epath.Path(directory).iterdir())
            raise ValueError(
                f"No position of a tf.data iterator in {folder}; found {found}. A"
                " tf.data pipeline continues only with the same number of processes."
            )
        restore_iterator(args.iterator, folder)
        return args.iterator

    def _folder(self, directory: epath.Path) -> epath.Path:
        share = current_share()
        return epath.Path(directory) / f"process_{share.index}-of-{share.count}"


@ocp.args.register_with_handler(TFDataHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class TFDataArg(ocp.args.CheckpointArgs):
    """The iterator to save or to move.

    Attributes:
      iterator: A `tf.data.Iterator`.
    """

    iterator: Any


def save_iterator(iterator: Any, directory: Any) -> None:
    """Write the position of a `tf.data.Iterator`."""
    tf.train.Checkpoint(ds=iterator).write(f"{directory}/tfdata")


def restore_iterator(iterator: Any, directory: Any) -> None:
    """Move a `tf.data.Iterator` to a written position.

    Raises:
      AssertionError: What was written does not belong to such an iterator.
    """
    checkpoint = tf.train.Checkpoint(ds=iterator)
    checkpoint.read(f"{directory}/tfdata").assert_consumed()


class NoopHandler(ocp.CheckpointHandler):
    """Writes nothing; restoring gives back what was passed in."""

    def save(self, directory: epath.Path, args: NoopArg) -> None:
        del directory, args

    def restore(self, directory: epath.Path, args: NoopArg) -> Any:
        del directory
        return args.value


@ocp.args.register_with_handler(NoopHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class NoopArg(ocp.args.CheckpointArgs):
    """The value that a restore returns.

    Attributes:
      value: Any object.
    """

    value: Any = None
