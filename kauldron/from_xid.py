"""Runs that were launched as an experiment, by the id of it.

    cfg = kd.from_xid.get_cfg(12, wid=3)

The id is looked up in the registry of experiments on this machine (`KAULDRON_HOME`);
everything else is as in `kd.from_workdir`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron import from_workdir

if TYPE_CHECKING:
    from kauldron.konfig import ConfigDict


def get_workdir(xid: int, wid: int = 1) -> epath.Path:
    """Return the folder of a work unit.

    Args:
      xid: The id of the experiment.
      wid: The number of the work unit.

    Raises:
      LookupError: There is no such experiment or work unit.
    """
    return from_workdir.locate(xid=xid, wid=wid)


locate = get_workdir


def get_cfg(xid: int, wid: int = 1, **kwargs: Any) -> ConfigDict:
    """Return the config of a work unit; see `kd.from_workdir.get_cfg`."""
    return from_workdir.get_cfg(get_workdir(xid, wid), **kwargs)


def get_resolved(xid: int, wid: int = 1, **kwargs: Any) -> Any:
    """Return what the config describes; see `kd.from_workdir.get_resolved`."""
    return from_workdir.get_resolved(get_workdir(xid, wid), **kwargs)


def get_element_spec(xid: int, wid: int = 1) -> Any:
    """Return the spec of the batches; see `kd.from_workdir.get_element_spec`."""
    return from_workdir.get_element_spec(get_workdir(xid, wid))


def get_trainer(xid: int, wid: int = 1, **kwargs: Any) -> Any:
    """Return the trainer; see `kd.from_workdir.get_trainer`."""
    return from_workdir.get_trainer(get_workdir(xid, wid), **kwargs)


def get_state(xid: int, wid: int = 1, **kwargs: Any) -> Any:
    """Return the state; see `kd.from_workdir.get_state`."""
    return from_workdir.get_state(get_workdir(xid, wid), **kwargs)
