"""A config with its overrides, to be handed on to jobs as flags."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kauldron import konfig, path_grammar
from kauldron.errors import ReadableKeyError, did_you_mean, error_prefix
from kauldron.job_params import JOB_PARAMS, TRAINER_FIELDS
from kauldron.konfig.overrides import config_files
from kauldron.konfig.overrides.config_files import ConfigSource
from kauldron.konfig.overrides.overrides import (
    ARGS_KEY,
    Override,
    apply_in_order,
    last_of_each,
)
from kauldron.konfig.signatures import (
    accepted_names,
    importing_symbols,
    known_signature,
)
from kauldron.konfig.symbols import normalize_qualname
from kauldron.konfig.tree import paths
from kauldron.kxm.command import CFG_FLAG_VALUES, WU_DIR_PROXY
from kauldron.kxm.jobs import Job

_TRAINERS = (
    "kauldron.kd.train.Trainer",
    "kauldron.kd.train.Trainer.eval_only",
    "kauldron.train.Trainer",
)


@dataclasses.dataclass(frozen=True)
class ConfigProvider:
    """A config and its overrides.

    Attributes:
      config: The config, with the overrides applied unless
        `requires_local_config_update`.
      config_parameter: The text behind `file.py:`.
      overrides: From path to value, in the order in which they are applied.
      module: Where the config came from, and where sweep functions are looked up.
      requires_local_config_update: Whether the overrides still have to be applied.
      file: What jobs get as `--cfg=`; by default the file of the module.

    Example:
      >>> provider = ConfigProvider(konfig.ConfigDict({"seed": 0}), overrides={"seed": 3})
      >>> provider.config.seed
      3
    """

    config: konfig.ConfigDict
    _: dataclasses.KW_ONLY
    config_parameter: str | None = None
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    module: types.ModuleType | None = None
    requires_local_config_update: bool = True
    file: str | None = None
    _typed: tuple[Override, ...] = ()
    _base: konfig.ConfigDict | None = None

    def __post_init__(self) -> None:
        if isinstance(self.module, str):
            module = importlib.import_module(self.module)
            object.__setattr__(self, "module", module)
        if not self._typed:
            typed = tuple(Override.of(k, v) for k, v in self.overrides.items())
            object.__setattr__(self, "_typed", typed)
        if self._base is None:
            object.__setattr__(self, "_base", self.config)
        config = with_job_nodes(self.config, self._typed)
        object.__setattr__(self, "config", config)
        if self.requires_local_config_update and self._typed:
            config = copy.deepcopy(self.config)
            fields = [o for o in self._typed if o.parts[0] != ARGS_KEY]
            check_paths(config, fields)
            apply_in_order(config, fields, may_import=False)
            object.__setattr__(self, "config", config)
            object.__setattr__(self, "requires_local_config_update", False)

    @classmethod
    def from_module(
        cls,
        module: types.ModuleType | str,
        *,
        overrides: Mapping[str, Any] | None = None,
        config_parameter: str | None = None,
    ) -> ConfigProvider:
        """Load the config of a module.

        Args:
          module: The module, or its dotted name.
          overrides: From path to value.
          config_parameter: The text that would stand behind `file.py:`.

        Raises:
          TypeError: It is neither a module nor a name.
        """
        if isinstance(module, str):
            module = importlib.import_module(module)
        if not isinstance(module, types.ModuleType):
            raise TypeError(
                f"Expected a config module or its dotted name, got {module!r}."
            )
        typed = tuple(Override.of(k, v) for k, v in (overrides or {}).items())
        base = config_files.build_config(module, config_parameter or "", _args(typed))
        return cls(
            base,
            config_parameter=config_parameter,
            overrides=dict(overrides or {}),
            module=module,
        )

    @classmethod
    def from_path(
        cls, path: str, *, overrides: Mapping[str, Any] | None = None
    ) -> ConfigProvider:
        """Load a config file, importing nothing of what `konfig.imports()` names.

        Args:
          path: `dir/config.py`, `dir/config.py:text`, a dotted module or a saved config.
          overrides: From path to value.
        """
        typed = tuple(Override.of(k, v) for k, v in (overrides or {}).items())
        return cls.from_source(ConfigSource(file=path, overrides=typed))

    @classmethod
    def from_source(cls, source: ConfigSource) -> ConfigProvider:
        """Load what was given on a command line as `--cfg=file --cfg.path=value`."""
        file, parameter = config_files.split_argument(source.file or "")
        typed = tuple(last_of_each(source.overrides))
        module = None
        with konfig.set_lazy_imported_modules(("*",)):
            if config_files.is_saved_config(file):
                base = config_files.load_saved_config(file)
            else:
                config_files.make_importable(*config_files.folders_around(file))
                module = config_files.load_module(file, f"{source.name}_config")
                base = config_files.build_config(module, parameter, _args(typed))
        is_path = file.endswith(".py") or config_files.is_saved_config(file)
        return cls(
            base,
            config_parameter=parameter or None,
            overrides={o.path: o.parsed for o in typed},
            module=module,
            file=os.path.abspath(file) if is_path else file,
            _typed=typed,
        )

    @classmethod
    def from_flag(cls, flag: Any) -> ConfigProvider:
        """Take over a flag of `konfig.DEFINE_config_file`, or its holder."""
        if hasattr(flag, "_flagvalues"):  # a FlagHolder of absl
            flag = flag._flagvalues[flag.name]
        return cls.from_source(flag.source)

    @property
    def path(self) -> str | None:
        """The file that the config was loaded from, if it was."""
        return self.file or getattr(self.module, "__file__", None)

    @property
    def config_path(self) -> str:
        """What jobs get as `--cfg=`, without the parameter."""
        if self.path is None:
            raise ValueError(
                "This config was not loaded from a file, so jobs cannot load it: give "
                "--cfg=path/to/config.py, or its module."
            )
        return self.path

    def for_sweep(self, values: Mapping[str, Any]) -> ConfigProvider:
        """Return a provider with the values of one sweep item.

        Args:
          values: From path to value. They are applied before the user's overrides,
            which therefore win.

        Raises:
          KeyError: A path does not exist; names the nearest.
          TypeError, ValueError: A value does not fit.
        """
        if not values:
            return self
        new = tuple(Override.of(path, value) for path, value in values.items())
        typed = parents_first((*_args((*new, *self._typed)), *new, *self._typed))
        base = self._base
        assert base is not None
        if _args(new):
            if self.module is None:
                raise ValueError(f"{new[0].path}: a saved config takes no arguments.")
            parameter = self.config_parameter or ""
            base = config_files.build_config(self.module, parameter, _args(typed))
        return dataclasses.replace(
            self,
            config=base,
            overrides={o.path: o.parsed for o in typed},
            requires_local_config_update=True,
            _typed=typed,
            _base=None,
        )

    def maybe_add_cfg_flags(self, job: Job) -> Job:
        """Replace the argument `CFG_FLAG_VALUES` by the config and its overrides.

        Raises:
          ValueError: Two arguments have that value, or an override contradicts an
            argument of the job.
        """
        name = config_argument(job)
        if name is None:
            return job
        parameter = f":{self.config_parameter}" if self.config_parameter else ""
        added = {name: f"{self.config_path}{parameter}"}
        for path, value in self.overrides.items():
            if job_path(path_grammar.parse(path)):  # is for the launcher
                continue
            key = f"{name}{path}" if path.startswith("[") else f"{name}.{path}"
            if job.args.get(key) == WU_DIR_PROXY:
                raise ValueError(
                    f"--{key}={value}: every work unit gets a folder of its own. "
                    "--xp.root_dir=... says where."
                )
            if key in job.args and job.args[key] != value:
                raise ValueError(
                    f"--{key}={value!r} contradicts the argument {key!r} of the job "
                    f"{job.name!r}, which is {job.args[key]!r}."
                )
            added[key] = value
        rest = {k: v for k, v in job.args.items() if k not in added}
        return job.replace(args={**added, **rest})


def with_job_nodes(
    cfg: konfig.ConfigDict, overrides: Iterable[Override]
) -> konfig.ConfigDict:
    """Return a config with the nodes that flags for job parameters go to.

    Such are `--cfg.xm_job.platform=cpu` and `--cfg.evals.test.run.env_vars.A=b`.
    """
    is_trainer = normalize_qualname(cfg.get("__qualname__", "")) in _TRAINERS
    wanted = [parts for o in overrides if len(parts := job_path(o.parts)) > 1]
    if not is_trainer or not wanted:
        return cfg
    below = {parts for o in overrides if (parts := job_path(o.parts)) != o.parts}
    cfg = copy.deepcopy(cfg)
    for parts in wanted:
        *path, name = parts
        if path[0] == "xm_job" and cfg.get("xm_job") is None:
            cfg["xm_job"] = job_part("Job")
        node = paths.get_by_path(cfg, tuple(path), None)
        if isinstance(node, konfig.ConfigDict) and parts in below:
            fill_part(node, name)
    return cfg


def job_path(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the part of a path up to a parameter of a job; empty if it has none.

    Example:
      >>> job_path(("evals", "test", "run", "env_vars", "A"))
      ('evals', 'test', 'run', 'env_vars')
    """
    if parts[0] == "xm_job":
        return parts[:2]
    is_run = parts[0] == "evals" and parts[2:3] == ("run",)
    is_of_evaluator = is_run and len(parts) > 3 and parts[3] in JOB_PARAMS
    return parts[:4] if is_of_evaluator else ()


def job_part(name: str) -> konfig.ConfigDict:
    """Return the node of a call of `kxm.<name>`."""
    return konfig.ConfigDict({"__qualname__": f"kauldron.kxm:{name}"})


_PARTS = {
    **dict.fromkeys(("args", "env_vars", "files", "after", "aux", "jobs"), None),
    "requirements": "JobRequirements",
    "debug": "Debug",
    "interpreter_info": "InterpreterInfo",
    "subdir_format": "SubdirFormat",
    "executor": "Local",
}


def fill_part(node: konfig.ConfigDict, name: Any) -> None:
    """Make a part of a job or an experiment that nested flags go to, if it is missing."""
    if name in _PARTS and node.get(name) is None:
        kind = _PARTS[name]
        node[name] = konfig.ConfigDict() if kind is None else job_part(kind)


def config_argument(job: Job) -> str | None:
    """Return the name of the argument that takes the config, if there is one.

    Raises:
      ValueError: There are two.
    """
    names = [name for name, value in job.args.items() if value == CFG_FLAG_VALUES]
    if len(names) > 1:
        raise ValueError(
            f"Job {job.name!r}: only one argument can be kxm.CFG_FLAG_VALUES, found "
            f"{' and '.join(names)}."
        )
    return names[0] if names else None


def _args(overrides: Iterable[Override]) -> list[Override]:
    return [o for o in last_of_each(overrides) if o.parts[0] == ARGS_KEY]


def parents_first(overrides: Iterable[Override]) -> tuple[Override, ...]:
    """Order overrides so that none undoes another below it; the last of each stays."""
    ordered: list[Override] = []
    for override in last_of_each(overrides):
        size = len(override.parts)
        place = next(
            (
                index
                for index, other in enumerate(ordered)
                if len(other.parts) > size and other.parts[:size] == override.parts
            ),
            len(ordered),
        )
        ordered.insert(place, override)
    args = [o for o in ordered if o.parts[0] == ARGS_KEY]
    return (*args, *(o for o in ordered if o.parts[0] != ARGS_KEY))


def check_paths(cfg: konfig.ConfigDict, overrides: Sequence[Override]) -> None:
    """Refuse paths that the config does not have.

    A new argument of a call is accepted if what is called takes it. Only this check
    imports what is called; a trainer is not imported, because its fields are known.

    Raises:
      KeyError: There is no such path; names the nearest.
    """
    given = {o.parts for o in overrides}
    for override in overrides:
        parts = override.parts
        is_below_another = any(parts[:size] in given for size in range(1, len(parts)))
        is_special = parts[0] == ARGS_KEY or paths.has_wildcard(parts)
        if not (is_below_another or is_special or _is_open(parts)):
            with error_prefix(f"{override.flag}: "):
                _check_path(cfg, override)


def _is_open(parts: tuple[Any, ...]) -> bool:
    """Return whether a path is inside a dict of a job, which takes any key."""
    path = job_path(parts)
    is_inside = bool(path) and parts != path
    return is_inside and path[-1] in ("args", "env_vars", "files", "after")


def _check_path(cfg: konfig.ConfigDict, override: Override) -> None:
    *parents, name = override.parts
    parent = paths.get_by_path(cfg, tuple(parents)) if parents else cfg
    if not isinstance(parent, konfig.ConfigDict) or paths.has_child(parent, name):
        return
    known = [str(key) for key in parent if not str(key).startswith("__")]
    qualname = parent.get("__qualname__")
    if qualname is not None:
        accepted = _accepted(qualname)
        if accepted is None or name in accepted:
            return
        known = [*known, *accepted]
    where = path_grammar.format_path(("cfg", *parents))
    known = list(dict.fromkeys(known))
    raise ReadableKeyError(
        f"There is no cfg.{override.path}."
        f"{did_you_mean(name, known)} {where} has: "
        f"{', '.join(known) or 'nothing'}."
    )


def _accepted(qualname: str) -> list[str] | None:
    """Return the arguments that a call takes; `None` if it takes any or is unknown."""
    if normalize_qualname(qualname) in _TRAINERS:
        return list(TRAINER_FIELDS)
    with importing_symbols():
        signature = known_signature(qualname)
    kinds = {p.kind for p in signature.parameters.values()} if signature else None
    if kinds is None or any(kind.name == "VAR_KEYWORD" for kind in kinds):
        return None
    assert signature is not None
    return accepted_names(signature)
