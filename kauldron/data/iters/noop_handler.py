"""An Orbax handler that stores nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import orbax.checkpoint as ocp
from etils import epath


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
    """What a restore is to return.

    Attributes:
      value: Any object.
    """

    value: Any = None
