"""Runs that were launched as an experiment, by the id of it.

    cfg = kd.from_xid.get_cfg(12, wid=3)

The id is looked up in the registry of experiments on this machine (`KAULDRON_HOME`);
everything else is as in `kd.from_workdir`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron import from_workdir
from kauldron.kxm import handle

if TYPE_CHECKING:
    from kauldron.konfig import ConfigDict
    from kauldron.train import Trainer


@dataclasses.dataclass(frozen=True)
class ExperimentRun:
    """A work unit of an experiment, and what its folder holds.

    Attributes:
      xid: The id of the experiment.
      wid: The number of the work unit.
    """

    xid: int
    wid: int = 1

    @functools.cached_property
    def wu(self) -> handle.WorkUnitHandle:
        """The work unit: its folder, sweep values and state."""
        return handle.get_experiment(self.xid).units([self.wid])[0]

    @property
    def root_dir(self) -> epath.Path:
        """The folder of the experiment."""
        return epath.Path(handle.get_experiment(self.xid).xp_dir)

    @property
    def config(self) -> ConfigDict:
        """The config that the work unit ran with."""
        return get_cfg(self.xid, self.wid)

    @property
    def trainer(self) -> Trainer:
        """The trainer that the config describes."""
        return get_trainer(self.xid, self.wid)


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
