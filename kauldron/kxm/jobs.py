"""What a job is: its program, its resources, and objects that know what was given.

`Job`, `Experiment` and the standalone strategies of evaluators share these parameters.
They remember the arguments that they were called with: only those take part in merging,
so that a default never contradicts what someone asked for.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from kauldron.errors import did_you_mean

#
# Objects that know their explicit arguments
#


class Parameters:
    """Base of the frozen, keyword-only parameter objects."""

    _given: Mapping[str, Any]
    _extra_arguments: ClassVar[bool] = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        _refuse_dataclasses_replace(cls)
        names = _names_of(cls)
        unknown = [name for name in kwargs if name not in names]
        if unknown and not cls._extra_arguments:
            hint = did_you_mean(unknown[0], names)
            raise TypeError(
                f"{cls.__name__} has no argument {unknown[0]!r}.{hint} It has: "
                f"{', '.join(names)}."
            )
        self = super().__new__(cls)
        object.__setattr__(self, "_given", kwargs)
        return self

    @property
    def explicit(self) -> dict[str, Any]:
        """The arguments that were passed, even those equal to a default."""
        return {name: getattr(self, name) for name in self._given}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other arguments.

        Args:
          **changes: The arguments to change; `dataclasses.MISSING` makes one a default
            again.

        Example:
          >>> job = Job(platform="cpu", target="tools/fit.py")
          >>> sorted(job.replace(platform=dataclasses.MISSING).explicit)
          ['target']
        """
        given = {**self.explicit, **changes}
        missing = dataclasses.MISSING
        return type(self)(**{k: v for k, v in given.items() if v is not missing})

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        shown = [(f.name, getattr(self, f.name)) for f in fields if f.repr]
        lines = [f"    {name}={short_repr(value)},\n" for name, value in shown]
        return f"{type(self).__name__}(\n{''.join(lines)})"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


@functools.cache
def _names_of(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def _refuse_dataclasses_replace(cls: type) -> None:
    caller = sys._getframe(2)
    is_replace = caller.f_code.co_name in ("replace", "_replace")
    if is_replace and caller.f_globals.get("__name__") == "dataclasses":
        raise ValueError(
            f"dataclasses.replace({cls.__name__.lower()}, ...) would turn every default "
            f"into a given argument. Use `{cls.__name__.lower()}.replace(...)`."
        )


def short_repr(value: Any) -> str:
    """Return the text of a value inside another: of parameters only the given ones."""
    if isinstance(value, Parameters):
        given = [f"{k}={short_repr(v)}" for k, v in value.explicit.items()]
        return f"{type(value).__name__}({', '.join(given)})"
    if isinstance(value, Mapping):
        items = [f"{k!r}: {short_repr(v)}" for k, v in value.items()]
        return f"{{{', '.join(items)}}}"
    return repr(value)


#
# Resources
#

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{u}i": 1024**i for i, u in enumerate("kmgt", 1)}
_TPUS = ("jf", "df", "pf", "vl", "tpu")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Platform:
    """An accelerator and how many of it.

    Attributes:
      kind: What it is.
      name: As it was given: `a100` of `a100=8`.
      count: The number of devices per node; 0 for `cpu`.
    """

    kind: Literal["cpu", "gpu", "tpu"]
    name: str
    count: int

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Read `cpu`, `gpu=2`, `a100=8`, `v4=2x2x1`.

        Raises:
          ValueError: It cannot be read.

        Example:
          >>> Platform.parse("a100=8")
          Platform(kind='gpu', name='a100', count=8)
        """
        match = re.fullmatch(r"([A-Za-z][\w-]*)(?:=(\d+(?:x\d+)*))?", str(text).strip())
        if match is None:
            raise ValueError(
                f"platform={text!r} cannot be read. Expected `cpu`, `gpu=N`, or a type "
                "with a number or topology: `a100=8`, `v4=2x2x1`."
            )
        name, topology = match.groups()
        count = math.prod(map(int, (topology or "1").split("x")))
        if name.lower() == "cpu":
            return cls(kind="cpu", name="cpu", count=0)
        if count == 0:
            raise ValueError(f"platform={text!r} asks for no device. Write `cpu`.")
        is_tpu = name.lower() in _TPUS or re.fullmatch(r"v[2-7][ep]?", name.lower())
        return cls(kind="tpu" if is_tpu else "gpu", name=name, count=count)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, init=False)
class JobRequirements(Parameters):
    """The resources of a job.

    Attributes:
      cpu: Cores.
      ram: Bytes of memory; texts such as `16GB` and `512MiB` are read.
      disk: Bytes of disk.
      gpus: GPUs per node.
      replicas: Nodes.
      time_limit: Minutes; texts such as `90m`, `2h` and `1-12:00:00` are read.
      other: All other arguments. They have no effect.
    """

    _extra_arguments: ClassVar[bool] = True

    cpu: float | None = None
    ram: int | None = None
    disk: int | None = None
    gpus: int | None = None
    replicas: int | None = None
    time_limit: int | None = None
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __init__(
        self,
        *,
        cpu: float | None = None,
        ram: int | str | None = None,
        disk: int | str | None = None,
        gpus: int | None = None,
        replicas: int | None = None,
        time_limit: int | str | None = None,
        **other: Any,
    ):
        values = {
            "cpu": cpu,
            "ram": _bytes("ram", ram),
            "disk": _bytes("disk", disk),
            "gpus": gpus,
            "replicas": replicas,
            "time_limit": _minutes(time_limit),
            "other": {**other, **other.pop("other", {})},
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name != "other" and name in self.other:
            return self.other[name]
        raise AttributeError(f"JobRequirements has no attribute {name!r}.")


def _bytes(name: str, value: int | str | None) -> int | None:
    if value is None or not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?|)b?\s*", value, re.I)
    if match is None:
        raise ValueError(
            f"{name}={value!r} is not a size: write a number of bytes, or a text such "
            "as `16GB` or `512MiB`."
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _minutes(value: int | str | None) -> int | None:
    if value is None or not isinstance(value, str):
        return value
    if value.isdecimal():
        return int(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)", value.strip())
    if match:
        minutes = {"s": 1 / 60, "m": 1, "min": 1, "h": 60, "d": 1440}[match[2]]
        return max(1, round(float(match[1]) * minutes))
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?", value.strip())
    if match is None:
        raise ValueError(
            f"time_limit={value!r} is not a time: write a number of minutes, or a text "
            "such as `90m`, `2h` or `1-12:00:00`."
        )
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return days * 1440 + hours * 60 + minutes + (seconds > 0)


#
# Jobs
#


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Debug(Parameters):
    """Switches for finding faults.

    Attributes:
      dump_hlo: Let XLA write its programs to `xla_dump` in the folder of the work unit.
      jax_log_compiles: Let jax log what it compiles.
      flax_profile: Let flax name its modules in profiles.
      catch_post_mortem: Open the debugger where an error is raised.
      xprof_port: Open a port for jax's profiler.
      pytype: Without effect.
      g3pdb_port: Without effect.
    """

    dump_hlo: bool = False
    jax_log_compiles: bool = False
    flax_profile: bool = True
    pytype: bool = False
    catch_post_mortem: bool = False
    xprof_port: bool = False
    g3pdb_port: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class InterpreterInfo(Parameters):
    """Accepted for older configs.

    Attributes:
      script_path: What runs instead of the job's `target`.
    """

    script_path: str | None = None
    interpreter_path: str | None = None
    init_code: str | None = None


MLPython = InterpreterInfo

AfterWhat = Literal["started", "succeeded"]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class JobParams(Parameters):
    """The parameters that jobs, experiments and standalone strategies share.

    Attributes:
      target: What to run: an argv list, the dotted name of a module, a `.py` file, or
        a program.
      platform: The accelerator: `cpu`, `gpu=2`, `a100=8`.
      requirements: Other resources.
      executor: The engine, or its name: `local`, `slurm`, `ray`, `k8s`, `dry`.
      args: The flags of the program: `{"depth": 3}` becomes `--depth=3`.
      env_vars: Environment variables.
      files: Files to copy, by the name that `kxm.file_path(name)` takes.
      debug: Switches for finding faults.
      add_jax_flags: Whether to set the environment variables of jax.
      interpreter_info: For older configs.
      python: The Python interpreter; by default the one that launches.
      cwd: The working directory; by default that of the launcher.
      after: Which jobs of the work unit to wait for: maps the name of each to `started`
        or `succeeded`.
      cell: Fills `{cell}` in folder names.
      priority: Has no effect; neither have `citc_source`, `use_interpreter`,
        `constraints` and `bazel_args`.
    """

    target: str | list[str] = ""
    platform: str | None = None
    requirements: JobRequirements = dataclasses.field(default_factory=JobRequirements)
    executor: Any = "local"
    args: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    env_vars: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    debug: Debug = dataclasses.field(default_factory=Debug)
    add_jax_flags: bool = True
    interpreter_info: InterpreterInfo = dataclasses.field(
        default_factory=InterpreterInfo
    )
    python: str | None = None
    cwd: str | None = None
    after: Mapping[str, AfterWhat] = dataclasses.field(default_factory=dict)
    priority: Any = 200
    cell: Any = None
    citc_source: Any = None
    use_interpreter: Any = False
    constraints: Any = dataclasses.field(default_factory=list)
    bazel_args: Any = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if self.platform is not None:
            Platform.parse(self.platform)
        for job, what in self.after.items():
            if what not in ("started", "succeeded"):
                raise ValueError(
                    f"after={{{job!r}: {what!r}}}: expected 'started' or 'succeeded'."
                )


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Job(JobParams):
    """One program of a work unit.

    Attributes:
      name: The key in `Experiment.jobs`.

    Example:
      >>> job = Job(target="tools/fit.py", args={"depth": 3}, platform="cpu")
      >>> job.replace(platform="gpu=1").platform, job.platform
      ('gpu=1', 'cpu')
    """

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    name: str | None = None

    @staticmethod
    def merge(*params: JobParams) -> Job:
        """Return a job with the given arguments of all; see `kxm.merging`."""
        from kauldron.kxm import merging

        return merging.merge(*params)
