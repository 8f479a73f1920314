"""Models of earlier runs, as parts of a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etils import epath

from kauldron import ckpts, from_workdir


def get_model_from_workdir(
    workdir: epath.PathLike,
    *,
    model_path: str | None = "model",
    config_update_fn: Callable[[Any], Any] | None = None,
) -> Any:
    """Return the model that the config of an earlier run describes; without weights.

    Args:
      workdir: Folder of the run.
      model_path: Where in the config, such as `"model.encoder"`; `None` for all of it.
      config_update_fn: Applied to that part of the config before it is resolved.

    Returns:
      The model, made by the code of today.
    """
    return from_workdir.get_resolved(workdir, model_path, update=config_update_fn)


def get_model_from_xid(
    xid: int | epath.PathLike,
    wid: int = 1,
    *,
    adhoc_from: Any = None,
    model_path: str | None = "model",
    config_update_fn: Callable[[Any], Any] | None = None,
) -> Any:
    """Return the model of an experiment, given its id; without weights.

    In a config it is a node: nothing is read before the config is resolved.

    Args:
      xid: Id of the experiment, or the folder of a run.
      wid: Number of the work unit.
      adhoc_from: Not available.
      model_path: Where in the config, such as `"model.encoder"`; `None` for all of it.
      config_update_fn: Applied to that part of the config before it is resolved.

    Returns:
      The model, made by the code of today.
    """
    if adhoc_from is not None:
        raise NotImplementedError(
            f"get_model_from_xid(adhoc_from={adhoc_from!r}): models are made by the "
            "installed code only."
        )
    try:
        workdir = ckpts.workdir_from_xid(xid, wid)
    except LookupError as error:
        error.add_note(
            "With the folder of the run: `kd.contrib.nn.get_model_from_workdir(folder)`."
        )
        raise
    return get_model_from_workdir(
        workdir, model_path=model_path, config_update_fn=config_update_fn
    )
