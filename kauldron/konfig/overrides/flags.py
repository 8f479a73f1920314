"""`DEFINE_config_file`: an absl flag whose value is a config."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kauldron.konfig.overrides.config_files import ConfigSource, take_overrides
from kauldron.konfig.tree.configdict import ConfigDict

if TYPE_CHECKING:
    from absl import flags


def DEFINE_config_file(
    name: str,
    default: str | None = None,
    help_string: str = "path to config file.",
    *,
    flag_values: flags.FlagValues | None = None,
    lock_config: bool = False,
    use_legacy_flag: bool = False,
    required: bool = False,
) -> flags.FlagHolder[Any]:
    """Define `--name=file.py` with overrides `--name.a.b=value`.

    The file is loaded and the overrides are applied when `.value` is read for the first
    time. Later reads give the same object, until the flag is set again.

    Args:
      name: The name of the flag.
      default: A config file to use when none is given.
      help_string: Shown by `--help`.
      flag_values: Where to define the flag; absl's global `FLAGS` if not given.
      lock_config: Not supported.
      use_legacy_flag: Use the flag of `ml_collections` instead.
      required: Whether parsing fails when no file is given.

    Returns:
      A holder whose `.value` is the `ConfigDict`, or None if no file was given.

    Raises:
      ValueError: `lock_config` was asked for.
    """
    from absl import flags

    if lock_config:
        raise ValueError("lock_config=True is not supported: call cfg.lock() instead.")
    values = flags.FLAGS if flag_values is None else flag_values
    if use_legacy_flag:
        from ml_collections.config_flags import config_flags

        return config_flags.DEFINE_config_file(
            name, default, help_string, values, lock_config=False
        )
    if required and default is not None:
        raise ValueError(f"--{name} cannot be required and have a default.")
    _take_part_in_parsing(values)
    flag = _flag_class()(name, default, help_string, required)
    return flags.DEFINE_flag(flag, values)


def _take_part_in_parsing(values: flags.FlagValues) -> None:
    """Make this set of flags hand `--name.path=value` to its config flags.

    absl has no way to define a family of flags, so the object gets a subclass of its
    class, whose parsing takes the overrides out first.
    """
    cls = _parsing_class(type(values))
    object.__setattr__(values, "__class__", cls)  # absl reads `x.y = z` as a flag


@functools.cache
def _parsing_class(base: type) -> type:
    if getattr(base, "_parses_config_overrides", False):
        return base

    class FlagValuesWithConfigs(base):
        """Flags of which some are configs."""

        _parses_config_overrides = True

        def __call__(self, argv: Sequence[str], known_only: bool = False) -> list[str]:
            if isinstance(argv, (str, bytes)) or not argv:
                return super().__call__(argv, known_only)  # absl explains
            arguments = self.read_flags_from_files(argv[1:], force_gnu=False)
            for name in list(self):
                if isinstance(self[name], _flag_class()):
                    arguments = self._take(name, arguments)
            rest = super().__call__([argv[0], *arguments], known_only)
            for name in list(self):
                if isinstance(self[name], _flag_class()):
                    self[name].check_given()
            return rest

        def _take(self, name: str, arguments: list[str]) -> list[str]:
            from absl import flags

            def takes_value(flag: str) -> bool:
                return flag in self and not self[flag].boolean

            try:
                overrides, others = take_overrides(
                    arguments, name, takes_value, not self.is_gnu_getopt()
                )
            except ValueError as error:
                raise flags.IllegalFlagValueError(str(error)) from None
            # A new file starts without the overrides of an earlier one.
            if overrides or any(a.split("=")[0].lstrip("-") == name for a in others):
                self[name].set_overrides(overrides)
            return others

    return FlagValuesWithConfigs


@functools.cache
def _flag_class() -> Any:
    from absl import flags

    class ConfigFlag(flags.Flag[Any]):
        """A config file and its overrides; the config itself is built when read."""

        def __init__(
            self, name: str, default: str | None, help_string: str, required: bool
        ) -> None:
            self._source = ConfigSource(name=name)
            self._required = required
            super().__init__(
                flags.ArgumentParser(),
                flags.ArgumentSerializer(),
                name,
                default,
                help_string,
            )

        @property
        def value(self) -> ConfigDict | None:
            if self._value is None and self._source.file is not None:
                self._value = self._source.build()
            return self._value

        @value.setter
        def value(self, value: str | ConfigDict | None) -> None:
            is_text = isinstance(value, str)
            self._set_source(self._source.overrides, value if is_text else None)
            if not is_text:
                self._value = value

        def set_overrides(self, overrides: Sequence[Any]) -> None:
            """Replace the overrides; the config will be built again."""
            self._set_source(tuple(overrides), self._source.file)

        def _set_source(self, overrides: tuple[Any, ...], file: str | None) -> None:
            # A new object, never a changed one: absl's flagsaver keeps the old.
            self._source = ConfigSource(name=self.name, file=file, overrides=overrides)
            self._value = None

        def check_given(self) -> None:
            """Raise if a required flag is missing. absl's check would read `value`."""
            if self._required and self._source.file is None and self._value is None:
                raise flags.IllegalFlagValueError(
                    f"flag --{self.name}=None: Flag --{self.name} must have a value "
                    "other than None."
                )

        def unparse(self) -> None:
            self._source = ConfigSource(name=self.name)
            super().unparse()

        @property
        def config_filename(self) -> str | None:
            """The text given as `--name=`."""
            return self._source.file

        @property
        def override_values(self) -> dict[str, Any]:
            """Return the values by path, in the order of their last appearance."""
            return self._source.override_values()

        @property
        def source(self) -> ConfigSource:
            """The file and the overrides."""
            return self._source

        def serialize(self) -> str:
            return "\n".join(self._source.as_flags())

    return ConfigFlag
