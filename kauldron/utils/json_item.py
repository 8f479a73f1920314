"""Objects that a checkpoint stores as a small JSON file."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Self


class JsonCheckpointItem(abc.ABC):
    """A checkpoint item that is JSON on disk; orbax is imported when it gets saved."""

    @abc.abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What is stored."""

    @abc.abstractmethod
    def with_json(self, value: Mapping[str, Any]) -> Self:
        """An object like this one that continues from what was stored."""

    def __kd_ocp_handlers__(self) -> Any:
        import orbax.checkpoint as ocp

        return ocp.JsonCheckpointHandler()

    def __kd_ocp_save_args__(self) -> Any:
        import orbax.checkpoint as ocp

        return ocp.args.JsonSave(self.to_json())

    def __kd_ocp_restore_args__(self) -> Any:
        import orbax.checkpoint as ocp

        return ocp.args.JsonRestore()

    def __kd_ocp_restore_post__(self, value: Any) -> Self:
        return self.with_json(value)
