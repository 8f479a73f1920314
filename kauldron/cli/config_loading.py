"""Loads the config that a command works on."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator, Sequence

from kauldron import konfig
from kauldron.cli.error_descriptions import describe
from kauldron.cli.usage_errors import UsageError
from kauldron.konfig import config_files
from kauldron.konfig.config_sources import ConfigSource, take_overrides

# Configs may name launchers that are not installed where they are inspected or trained.
LAZY_MODULES = ("kauldron.xm", "kauldron.kxm", "xmanager")


def source_from_arguments(
    arguments: Sequence[str], name: str
) -> tuple[ConfigSource, list[str]]:
    """Takes `--name=file` and `--name.path=value` out of the arguments.

    Raises:
      UsageError: An override cannot be read, or `--name` has no value.
    """
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
        file = value if equals else next(remaining, "")
        if not file:
            raise UsageError(f"{argument}: the path of a config file is missing.")
    source = ConfigSource(name=name, file=file, overrides=tuple(overrides))
    return source, rest


def load_config(source: ConfigSource, *, import_nothing: bool) -> konfig.ConfigDict:
    """Builds the config, or tells what is wrong with it.

    Args:
      source: The file and its overrides.
      import_nothing: Whether the modules named inside `konfig.imports()` stay
        unimported: enough to look at a config, and fast.

    Raises:
      UsageError: Whatever went wrong: the file, what it does, or an override.
    """
    lazy = ("*",) if import_nothing else LAZY_MODULES
    with bad_input(source), konfig.set_lazy_imported_modules(lazy):
        cfg = source.build(import_nothing=import_nothing)
    file = config_files.split_argument(source.file or "")[0]
    if config_files.is_saved_config(file) and not import_nothing:
        folder = pathlib.Path(file if os.path.isdir(file) else os.path.dirname(file))
        recorded = config_files.recorded_folders(folder / "run_info.json")
        config_files.make_importable(*recorded)
    return cfg


@contextlib.contextmanager
def bad_input(source: ConfigSource) -> Iterator[None]:
    """Turns what is raised inside into a message about the config.

    Raises:
      UsageError: With the message of the error and, if it came from the config file,
        the line there.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        file = config_files.split_argument(source.file)[0] if source.file else None
        raise UsageError(describe(error, file)) from error
