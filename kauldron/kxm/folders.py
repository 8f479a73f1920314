"""Names of folders: `root_dir`, the experiment's folder, the work unit's folder."""

from __future__ import annotations

import dataclasses
import functools
import getpass
import hashlib
import os
import re
import string
import time
import types
from collections.abc import Mapping
from typing import Any

from kauldron.errors import did_you_mean

_LONGEST = 127
_LONGEST_KEPT = 110


def login_name() -> str:
    """Return the name of the user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without an entry, as in some containers
        return "unknown"


@dataclasses.dataclass(kw_only=True)
class ExperimentInfo:
    """What folder names may say about an experiment.

    Attributes:
      experiment_id: The id; `<xid>` in a dry run.
      name: The name.
      author: The login name.
      created: When it was launched, in seconds.
      num_work_units: How many work units there are.
    """

    experiment_id: int | str
    name: str = ""
    author: str = dataclasses.field(default_factory=login_name)
    created: float = dataclasses.field(default_factory=time.time)
    num_work_units: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkUnitInfo:
    """What folder names may say about a work unit."""

    work_unit_id: int


class Context(types.SimpleNamespace):
    """What is known when a folder name is made. Reading what is not is an error.

    Args:
      **known: Of `xp`, `resolved_jobs`, `sweep_info`, `wu` and `sweep_item`.
    """

    def replace(self, **values: Any) -> Context:
        """Return a copy that knows other things."""
        return Context(**{**vars(self), **values})

    def __getattr__(self, name: str) -> Any:
        if name not in ("xp", "resolved_jobs", "sweep_info", "wu", "sweep_item"):
            raise AttributeError(f"The context of folders has no {name!r}.")
        raise ValueError(f"`{name}` not set yet")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubdirFormat:
    """What folders are called.

    Every method is a field: a subclass with a method `model(self, ctx)` may write
    `{model}`.

    Attributes:
      xp_dirname: The folder of an experiment, below `root_dir`.
      wu_dirname: The folder of a work unit, below that.

    Example:
      >>> format = SubdirFormat(wu_dirname="{wid}{separator_if_sweep}{sweep_kwargs}")
    """

    xp_dirname: str = "{xid}"
    wu_dirname: str = "{wid}"

    def __post_init__(self) -> None:
        for name in ("xp_dirname", "wu_dirname"):
            object.__setattr__(self, name, str(getattr(self, name)))

    def xid(self, ctx: Context) -> str:
        return str(ctx.xp.experiment_id)

    def name(self, ctx: Context) -> str:
        return safe_name(ctx.xp.name)

    title = name

    def author(self, ctx: Context) -> str:
        return ctx.xp.author

    user = author

    def cell(self, ctx: Context) -> str:
        first = next(iter(ctx.resolved_jobs.values()), None)
        return str(getattr(first, "cell", None) or "local")

    def date(self, ctx: Context) -> str:
        return time.strftime("%Y-%m-%d", time.localtime(ctx.xp.created))

    def time(self, ctx: Context) -> str:
        return time.strftime("%H%M%S", time.localtime(ctx.xp.created))

    def wid(self, ctx: Context) -> str:
        return str(ctx.wu.work_unit_id).zfill(len(str(ctx.xp.num_work_units)))

    def unpadded_wid(self, ctx: Context) -> str:
        return str(ctx.wu.work_unit_id)

    def sweep_kwargs(self, ctx: Context) -> str:
        return sweep_text(ctx.sweep_item.xm_ui_kwargs)

    def separator_if_sweep(self, ctx: Context) -> str:
        return "-" if ctx.sweep_item.xm_ui_kwargs else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DirectoryBuilder:
    """Makes the paths of folders.

    Attributes:
      subdir_format: What they are called.
      unresolved_root_dir: Where they are; may contain fields of the experiment, `~` and
        environment variables.
      ctx: What is known so far.
    """

    subdir_format: SubdirFormat
    unresolved_root_dir: str | None
    ctx: Context = dataclasses.field(default_factory=Context)

    @property
    def root_dir(self) -> str:
        """The folder that holds the experiment's."""
        if self.unresolved_root_dir is None:
            raise ValueError("`xp.root_dir` was not set. Give --xp.root_dir=folder.")
        text = self.format_dir(str(self.unresolved_root_dir))
        if "://" in text:
            return text
        return os.path.abspath(os.path.expanduser(os.path.expandvars(text)))

    @property
    def xp_dir(self) -> str:
        """The folder of the experiment."""
        _ = self.ctx.xp
        return os.path.join(
            self.root_dir, self.format_dir(self.subdir_format.xp_dirname)
        )

    @property
    def wu_dir(self) -> str:
        """The folder of the work unit."""
        _ = self.ctx.wu
        return os.path.join(self.xp_dir, self.format_dir(self.subdir_format.wu_dirname))

    def replace_ctx(self, **values: Any) -> DirectoryBuilder:
        """Return a builder that knows more."""
        return dataclasses.replace(self, ctx=self.ctx.replace(**values))

    def format_dir(self, text: str) -> str:
        """Fill in the fields of a text.

        Raises:
          ValueError: There is no such field, or its value is not known yet.
        """
        known = _field_names(type(self.subdir_format))
        values = {}
        for _, name, _, _ in string.Formatter().parse(text):
            if name is None:
                continue
            if name not in known:
                raise ValueError(
                    f"Unrecognized dir property: {{{name}}}."
                    f"{did_you_mean(name, known)} Known: {', '.join(known)}."
                )
            try:
                values[name] = getattr(self.subdir_format, name)(self.ctx)
            except ValueError as error:
                raise ValueError(f"{{{name}}} in {text!r}: {error}") from error
        return text.format(**values)


@functools.cache
def _field_names(cls: type[SubdirFormat]) -> list[str]:
    fields = {field.name for field in dataclasses.fields(cls)}
    names = [name for name in dir(cls) if name[0] != "_" and name not in fields]
    return [name for name in names if callable(getattr(cls, name))]


def sweep_text(values: Mapping[str, Any]) -> str:
    """Return `k=v,k=v` as part of a folder name: readable, valid and unique.

    Example:
      >>> sweep_text({"seed": 1, "train_ds.shape": [2, 3]})
      'seed=1,train_ds.shape=(2, 3)'
    """
    raw = repr(dict(values))
    text = _cleaned(values)
    if len(text) <= _LONGEST:
        return text
    short = {key.rpartition(".")[2]: value for key, value in values.items()}
    if len(short) == len(values):
        shorter = _cleaned(short)
        if len(shorter) <= _LONGEST:
            return shorter
        values = short
    parts: list[str] = []
    for key, value in values.items():
        part = _cleaned({key: value})
        if len(",".join([*parts, part])) <= _LONGEST_KEPT:
            parts.append(part)
    digest = hashlib.sha256(raw.encode()).hexdigest()[:8]
    return f"{','.join(parts)}...{digest}"


def _cleaned(values: Mapping[str, Any]) -> str:
    text = ",".join(f"{key}={value}" for key, value in values.items())
    text = text.replace("[", "(").replace("]", ")")
    text = re.sub(r"[*%/\\\n\r\0]", "", text)
    return re.sub(r"\s+", " ", text).strip()


def safe_name(text: str) -> str:
    """Return a text as the name of a folder.

    Example:
      >>> safe_name("my project/run: 3")
      'my_project_run_3'
    """
    return re.sub(r"[^\w.+=-]+", "_", text).strip("_.") or "experiment"
