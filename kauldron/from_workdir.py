"""An earlier run, read from its folder: config, specs, trainer, state.

Everything here reads data only, and writes nothing:

    trainer = kd.from_workdir.get_trainer("runs/1")
    state = kd.from_workdir.get_state("runs/1")
"""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron import konfig, train
from kauldron.errors import ReadableKeyError, a_type, did_you_mean, error_prefix
from kauldron.evals import standalone_files
from kauldron.konfig.overrides import config_files
from kauldron.konfig.resolution.allow import active_lists, restricted_for
from kauldron.konfig.tree.history import recording
from kauldron.kxm import handle
from kauldron.train import trainer_fields
from kauldron.train.run import saved_states, workdir_files

if TYPE_CHECKING:
    from kauldron.konfig import ConfigDict


class _Missing(enum.Enum):
    RAISE = enum.auto()

    def __repr__(self) -> str:
        return "<raise>"


# What the state depends on.
_STATE_FIELDS = ("seed", "rng_streams", "sharding", "trainstep")
_ALIASES = {"train_losses": ("losses", "train_loss")}


def locate(
    workdir: epath.PathLike | None = None,
    default: epath.PathLike | None = None,
    *,
    xid: int | None = None,
    wid: int | None = None,
) -> epath.Path:
    """Return the folder of an earlier run.

    Args:
      workdir: The folder.
      default: The folder to use if neither `workdir` nor `xid` is given.
      xid: Id of an experiment to use if `workdir` is not given.
      wid: The work unit of that experiment; the first if not given.

    Returns:
      The folder.

    Raises:
      ValueError: Nothing says which run: no folder is given, and no `xid`.
      LookupError: There is no experiment with that id.
      FileNotFoundError: It is not the folder of a run.
    """
    given = default if workdir is None else workdir
    if xid is not None and workdir is None:
        with error_prefix(f"xid={xid} (`cfg.aux.workdir` takes a folder instead): "):
            given = handle.get_experiment(xid).units([wid or 1])[0].workdir
    if given is None or not str(given):
        raise ValueError(
            "Which earlier run? Set `cfg.aux.workdir` (`--cfg.aux.workdir=...`) to its "
            "folder."
        )
    path = epath.Path(given)
    if not (path / workdir_files.CONFIG_FILENAME).exists():
        raise FileNotFoundError(
            f"{path} is not the folder of a run: it has no "
            f"{workdir_files.CONFIG_FILENAME}. {_describe_content(path)}"
        )
    return path


def get_cfg(workdir: epath.PathLike, *, lazy: bool = True) -> ConfigDict:
    """Return the config of the run.

    Args:
      workdir: Folder of the run.
      lazy: Whether the modules that the config names stay unimported until `resolve`.

    Returns:
      The config, to look at, change and resolve.
    """
    path = locate(workdir) / workdir_files.CONFIG_FILENAME
    text = path.read_text()
    with error_prefix(f"{path}: "):
        with recording("json", str(path)):
            cfg = konfig.ConfigDict.from_json(text)
        problems = [] if lazy else konfig.check(cfg)
        if problems:
            raise ValueError("\n".join(map(str, problems)))
    return cfg


def get_resolved(
    workdir: epath.PathLike,
    path: str | None = None,
    default: Any = _Missing.RAISE,
    *,
    allow: Iterable[str] | None = None,
    update: Callable[[Any], Any] | None = None,
) -> Any:
    """Return what the config of the run describes, or a part of it.

    Only the part is built, so the rest may name what does not exist any more.

    Args:
      workdir: Folder of the run.
      path: Such as `"model"` or `"evals.test.ds"`; `None` for everything.
      default: Returned if the config has no such field; by default that is an error.
      allow: Packages that the config may name; see `konfig.resolve`. By default any, or
        the `konfig.COMMON_PACKAGES` if another user owns the folder's config.
      update: Applied to that part of the config before it is built.

    Returns:
      The object.
    """
    cfg = get_cfg(workdir)
    where = f"{epath.Path(workdir) / workdir_files.CONFIG_FILENAME}: "
    if path is None:
        with error_prefix(where):
            return _resolve(cfg if update is None else update(cfg), workdir, allow)
    name, found = _find(cfg, path)
    if found is _Missing.RAISE:
        if default is not _Missing.RAISE:
            return default
        raise ReadableKeyError(
            f"{where}there is no {path!r}.{did_you_mean(path, cfg)} "
            f"It has {', '.join(cfg)}."
        )
    with error_prefix(f"{where}{name}: "):
        found = found if update is None else update(found)
        value = _resolve(found, workdir, allow)
    return {"loss": value} if name == "train_loss" else value


def get_element_spec(workdir: epath.PathLike) -> Any:
    """Return shapes and dtypes of a batch of training data, as a tree of `ArraySpec`."""
    workdir = epath.Path(workdir)
    if not (workdir / workdir_files.ELEMENT_SPEC_FILENAME).exists():
        raise FileNotFoundError(
            f"{workdir} has no {workdir_files.ELEMENT_SPEC_FILENAME}, which training writes "
            f"when it starts. {_describe_content(workdir)}"
        )
    return workdir_files.read_element_spec(workdir)


def get_trainer(
    workdir: epath.PathLike, *, allow: Iterable[str] | None = None
) -> train.Trainer:
    """Return the trainer of the run, also if its folder was moved.

    Args:
      workdir: Folder of the run.
      allow: Packages that the config may name; see `konfig.resolve`. By default any, or
        the `konfig.COMMON_PACKAGES` if another user owns the folder's config.
    """
    cfg = get_cfg(workdir)
    cfg.workdir = str(workdir)
    with error_prefix(f"{epath.Path(workdir) / workdir_files.CONFIG_FILENAME}: "):
        trainer = _resolve(cfg, workdir, allow)
        if not isinstance(trainer, train.Trainer):
            raise TypeError(
                f"it describes {a_type(trainer)}, not a `kd.train.Trainer`."
            )
    return trainer


def get_state(
    workdir: epath.PathLike,
    *,
    step: saved_states.Step = -1,
    optimizer: bool = False,
    allow: Iterable[str] | None = None,
) -> train.TrainState:
    """Return the state of a checkpoint of the run. Its training data need not exist.

    Args:
      workdir: Folder of the run.
      step: Which checkpoint; -1 or `"last"` for the newest, `"best"` for the best by
        the checkpointer's `best_metric_path`.
      optimizer: Whether to read the optimizer state too.
      allow: Packages that the config may name; see `konfig.resolve`. By default any, or
        the `konfig.COMMON_PACKAGES` if another user owns the folder's config.
    """
    fields = {
        name: get_resolved(workdir, name, None, allow=allow)
        for name in (*_STATE_FIELDS, *(("optimizer",) if optimizer else ()))
    }
    trainer = train.Trainer(
        model=get_resolved(workdir, "model", allow=allow),
        **{name: value for name, value in fields.items() if value is not None},
    )
    specs = trainer_fields.state_specs(
        trainer, element_spec=get_element_spec(workdir), with_optimizer=optimizer
    )
    if isinstance(step, str):
        checkpointer = get_resolved(workdir, "checkpointer", allow=allow)
        moved = dataclasses.replace(checkpointer, workdir=epath.Path(workdir))
        step = saved_states.find_step(moved, step)
    return standalone_files.load_state(specs, workdir=workdir, step=step)


def _resolve(
    cfg: ConfigDict, workdir: epath.PathLike, allow: Iterable[str] | None
) -> Any:
    """Build a part of the run's config, with its modules found where the run found them.

    A folder that only the run itself names is not trusted more than the run is.
    """
    folder = epath.Path(workdir)
    with restricted_for(os.fspath(folder / workdir_files.CONFIG_FILENAME), allow):
        run_info = folder / workdir_files.RUN_INFO_FILENAME
        recorded = [] if active_lists() else config_files.recorded_folders(run_info)
        config_files.make_importable(*recorded, os.getcwd())
        return konfig.resolve(cfg)


def _find(cfg: ConfigDict, path: str) -> tuple[str, Any]:
    """Return the name under which the config has the field, and its value."""
    for name in (path, *_ALIASES.get(path, ())):
        value = konfig.get_by_path(cfg, name, default=None)
        if value is not None:
            return name, value
    return path, _Missing.RAISE


def _describe_content(path: epath.Path) -> str:
    if not path.exists():
        return "There is no such folder."
    names = sorted(child.name for child in path.iterdir()) if path.is_dir() else []
    return f"It holds: {', '.join(names[:20]) or 'nothing'}."
