"""From the flags of a command to its config and trainer, and commands as objects."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import linecache
import os
import pathlib
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import kauldron
from kauldron import konfig
from kauldron.cli.command_table import Implementation
from kauldron.cli.terminal import UsageError
from kauldron.errors import a_type, message_with_notes
from kauldron.konfig.overrides import config_files
from kauldron.konfig.overrides.config_files import ConfigSource, take_overrides
from kauldron.konfig.overrides.overrides import last_of_each
from kauldron.konfig.resolution.allow import active_lists, restricted_for
from kauldron.konfig.tree.history import short_file

if TYPE_CHECKING:
    from kauldron.train import Trainer


# Configs may name launchers that are not installed where they are inspected or trained.
LAZY_MODULES = ("kauldron.xm", "kauldron.kxm", "xmanager")


def source_from_arguments(
    arguments: Sequence[str], name: str
) -> tuple[ConfigSource, list[str]]:
    """Take `--name=file` and `--name.path=value` out of the arguments."""
    try:
        overrides, others = take_overrides(arguments, name, lambda flag: flag == name)
    except ValueError as error:
        raise UsageError(str(error)) from error
    file: str | None = None
    rest: list[str] = []
    remaining = iter(others)
    for argument in remaining:
        flag, equals, value = argument.partition("=")
        if flag not in (f"--{name}", f"-{name}"):
            rest.append(argument)
            continue
        # After an equals sign, shells leave `~` alone.
        file = os.path.expanduser(value) if equals else next(remaining, "")
        if not file:
            raise UsageError(f"{argument}: the path of a config file is missing.")
    source = ConfigSource(name=name, file=file, overrides=tuple(overrides))
    return source, rest


def load_config(source: ConfigSource, *, import_nothing: bool) -> konfig.ConfigDict:
    """Build the config, or say what is wrong with it.

    With `import_nothing`, the modules named inside `konfig.imports()` stay unimported:
    enough to look at a config, and fast.
    """
    lazy = ("*",) if import_nothing else LAZY_MODULES
    with bad_input(source), konfig.set_lazy_imported_modules(lazy):
        cfg = source.build(import_nothing=import_nothing)
    file = config_files.split_argument(source.file or "")[0]
    if config_files.is_saved_config(file) and not import_nothing and not active_lists():
        folder = pathlib.Path(file if os.path.isdir(file) else os.path.dirname(file))
        recorded = config_files.recorded_folders(folder / "run_info.json")
        config_files.make_importable(*recorded)
    return cfg


#
# Configs that others saved
#


def add_trust_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--allow` and `--trust`."""
    parser.add_argument(
        "--allow",
        action="append",
        metavar="PACKAGE",
        help="build only what configs are made of, from "
        f"{', '.join(konfig.COMMON_PACKAGES)} and this package; or a single symbol, as "
        "module:name (can be repeated). Without it, configs that other users saved are "
        "restricted to the former",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run whatever a config names that another user saved",
    )


@contextlib.contextmanager
def with_trust(
    file: str | None, *, allow: Sequence[str] | None, trust: bool
) -> Iterator[None]:
    """Restrict what is resolved inside, as the arguments and the config file ask for."""
    if allow and trust:
        raise UsageError("--allow and --trust contradict each other: give one of them.")
    listed = None
    if trust:
        listed = ["*"]
    elif allow:
        names = [name.strip() for text in allow for name in text.split(",")]
        listed = [*konfig.COMMON_PACKAGES, *filter(None, names)]
    saved = file if file and config_files.is_saved_config(file) else ""
    if os.path.isdir(saved):
        saved = os.path.join(saved, "config.json")
    try:
        with restricted_for(saved, listed):
            yield
    except konfig.NotAllowedError as error:
        raise UsageError(str(error)) from error


@dataclasses.dataclass(frozen=True)
class ConfigOrigin:
    """Where a config came from.

    Attributes:
      filename: What was given as `--cfg=`.
      overrides: From path to value, what was given as `--cfg.path=value`.
      patches: From path to value, what a `PatchConfig` changed.

    Example:
      >>> print(ConfigOrigin("a.py", {"seed": 3}, {"batch_size": 1}).summary())
      --cfg=a.py
      --cfg.seed=3
      patched: batch_size=1
    """

    filename: str | None = None
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    patches: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, source: ConfigSource) -> ConfigOrigin:
        """Return the origin of a config that a command line gave, after it was built."""
        overrides = {o.path: o.value for o in last_of_each(source.overrides)}
        return cls(source.file, overrides, getattr(source, "changes", {}))

    def summary(self, include_patches: bool = True) -> str:
        """Return one line for each thing that there is."""
        lines = [f"--cfg={self.filename}"] if self.filename else []
        for path, value in self.overrides.items():
            dot = "" if path.startswith("[") else "."
            lines.append(f"--cfg{dot}{path}={value}")
        if include_patches:
            lines += [f"patched: {path}={v}" for path, v in self.patches.items()]
        return "\n".join(lines)


#
# The trainer
#


def build_trainer(cfg: konfig.ConfigDict, source: ConfigSource) -> Trainer:
    """Build the trainer of a config that came from `source`."""
    problems = konfig.check(cfg)
    if problems:
        raise UsageError("\n".join(map(str, problems)))
    with bad_input(source):
        trainer = _resolve(cfg)
    from kauldron.train import Trainer

    if not isinstance(trainer, Trainer):
        is_dict = isinstance(trainer, Mapping)
        raise UsageError(
            f"{source.file} describes {'a dict' if is_dict else a_type(trainer)}, not a "
            "`kd.train.Trainer`: begin it with `cfg = kd.train.Trainer()`."
        )
    return trainer


def _resolve(cfg: konfig.ConfigDict) -> Any:
    try:
        return konfig.resolve(cfg)
    except Exception as error:
        from kauldron.cli.commands.check import build_what_can_be

        problems = build_what_can_be(cfg).problems.messages
        if problems in ([], [message_with_notes(error)]):
            raise
        raise UsageError("\n".join(problems)) from error


#
# Errors of the config
#


@contextlib.contextmanager
def bad_input(source: ConfigSource) -> Iterator[None]:
    """Turn what is raised inside into a message that names the line of the config."""
    try:
        yield
    except (UsageError, BrokenPipeError):  # the latter is of who reads what is printed
        raise
    except Exception as error:
        file = config_files.split_argument(source.file)[0] if source.file else None
        raise UsageError(describe(error, file)) from error


def describe(error: BaseException, user_file: str | None = None) -> str:
    """Return the message of an error, with the line of the user's file it came from."""
    if isinstance(error, SyntaxError) and error.filename:
        lines = traceback.format_exception_only(SyntaxError, error)
        place = f"{short_file(error.filename)}:{error.lineno}"
        return f"{place}: {error.msg}\n{''.join(lines[1:-1]).rstrip()}"
    path = os.path.abspath(user_file) if user_file else None
    line = _innermost_line(error, lambda file: os.path.abspath(file) == path)
    return message_with_notes(error) + line


def users_line(error: BaseException) -> str:
    """Return the innermost line of the user's own code that an error passed through."""
    return _innermost_line(error, lambda file: not _is_of_library(file))


def _is_of_library(file: str) -> bool:
    path = os.path.abspath(file)
    return file.startswith("<") or path.startswith(_LIBRARIES)


_LIBRARIES = (
    os.path.dirname(os.path.abspath(kauldron.__file__)) + os.sep,
    *(
        os.path.abspath(sysconfig.get_path(name)) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
)


def _innermost_line(error: BaseException, is_wanted: Callable[[str], bool]) -> str:
    """Return the last line in one of the files that are wanted; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if is_wanted(frame.filename)]
    if not lines:
        return ""
    line, kind = lines[-1], type(error).__name__
    source = linecache.getline(line.filename, line.lineno or 0).strip()
    place = f"{short_file(line.filename)}:{line.lineno}, in {line.name}"
    return f"\n  {kind} raised at {place}\n    {source}"


#
# Commands as objects: what `kauldron <group> <command>` does, from Python
#


@dataclasses.dataclass(frozen=True, eq=False)
class SubCommand(Implementation):
    """A command on a config. Subclasses add options as fields and define `__call__`.

    Attributes:
      cfg: The config.
      origin: Where it came from.
      group: The group that the command is run in.

    Example:
      >>> @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
      ... class Count(SubCommand):
      ...     text: str = "fields"
      ...
      ...     def __call__(self):
      ...         print(len(self.cfg), self.text)
      >>> Count(konfig.ConfigDict({"a": 1}), text="field")()
      1 field
    """

    cfg: konfig.ConfigDict | None = None
    origin: ConfigOrigin | None = None
    group: CommandGroup | None = dataclasses.field(default=None, repr=False)

    import_nothing = False  # whether the modules that the config names stay unimported

    @functools.cached_property
    def trainer(self) -> Trainer:
        """The trainer that the config describes, built when it is first asked for."""
        return konfig.resolve(self.config)

    @property
    def config(self) -> konfig.ConfigDict:
        """The config; an error if none was given."""
        if self.cfg is None:
            raise ValueError(f"{type(self).__name__} needs a config: pass `cfg=`.")
        return self.cfg

    def print_config_origin(self) -> None:
        """Print where the config came from."""
        if self.origin is not None and self.origin.summary():
            print("\n".join(f"# {line}" for line in self.origin.summary().split("\n")))

    def __call__(self) -> Any:
        """Do the work and return the exit code, or `None` for 0."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__.")

    def execute(self) -> Any:
        """Call the command."""
        return self()

    @classmethod
    def with_trainer(cls, cfg: konfig.ConfigDict, source: ConfigSource) -> Self:
        """Return the command on a config and the trainer that is built of it now."""
        command = cls(cfg, ConfigOrigin.of(source))
        # The value of the cached property.
        vars(command)["trainer"] = build_trainer(cfg, source)
        return command

    @classmethod
    def run(cls, args: argparse.Namespace) -> int:
        """Call the command with the config and the options of a command line."""
        cfg = load_config(args.cfg, import_nothing=cls.import_nothing)
        names = [field.name for field in dataclasses.fields(cls)]
        options = {name: getattr(args, name) for name in names if name in args}
        options |= {"cfg": cfg, "origin": ConfigOrigin.of(args.cfg)}
        with bad_input(args.cfg):
            return cls(**options)()


@dataclasses.dataclass(frozen=True, eq=False)
class CommandGroup:
    """Commands that belong together, of which one was chosen.

    Attributes:
      sub_command: The chosen one.
    """

    sub_command: SubCommand


def execute_command(
    group: CommandGroup, cfg: konfig.ConfigDict, origin: ConfigOrigin | None = None
) -> Any:
    """Run the chosen command of a group on a config.

    Args:
      group: The group.
      cfg: The config.
      origin: Where the config came from.

    Returns:
      What the command returns.
    """
    changes = {"cfg": cfg, "origin": origin, "group": group}
    return dataclasses.replace(group.sub_command, **changes)()
