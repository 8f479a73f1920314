"""Older names and import paths, kept for configs and pickles that use them."""

from __future__ import annotations

import importlib
import os

from etils import epath

from kauldron.lazy_namespace import older_modules


def workdir_from_xid(xid: int | epath.PathLike | None, wid: int = 1) -> epath.Path:
    """Return the folder of a run by the id of its experiment.

    Args:
      xid: The id, or the folder itself.
      wid: Number of the work unit.
    """
    if xid is None:
        raise ValueError(
            "Which run? The id of its experiment is not set. Configs have it at "
            "`cfg.aux.xid`; or give the folder of the run instead."
        )
    if isinstance(xid, str | os.PathLike):
        return epath.Path(xid)
    # Ids are looked up by a module above this package.
    return importlib.import_module("kauldron.from_xid").get_workdir(xid, wid)


older_modules(
    "kauldron.ckpts",
    {
        "loaders": "partial_loader",
        "mapped_loader": "partial_loader",
        "saving": "save_session",
    },
)
