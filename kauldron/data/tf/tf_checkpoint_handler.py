"""An Orbax handler for positions in `tf.data` pipelines."""

from __future__ import annotations

import dataclasses
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from kauldron.data.processes import current_share
from kauldron.data.tf import tf_iterator


class TFDataHandler(ocp.CheckpointHandler):
    """Stores a `tf.data.Iterator` as `process_{p}-of-{P}/tfdata*`."""

    def save(self, directory: epath.Path, args: TFDataArg) -> None:
        folder = self._folder(directory)
        folder.mkdir(parents=True, exist_ok=True)
        tf_iterator.save_iterator(args.iterator, folder)

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
        tf_iterator.restore_iterator(args.iterator, folder)
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
