"""`--patch.name=value` on the command line."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

from kauldron import konfig
from kauldron.cli.patch_config import PatchConfig
from kauldron.cli.usage_errors import UsageError
from kauldron.konfig.config_sources import ConfigSource, take_overrides
from kauldron.konfig.override_values import parse_value
from kauldron.konfig.overriding import Override


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchedSource(ConfigSource):
    """A config that is made small after it was built.

    Attributes:
      patch: How. What the user overrides stays as the user wants it.
      patch_flags: The flags as typed.
      changes: What the patch changed, from path to value; filled in by `build`.
    """

    patch: PatchConfig
    patch_flags: tuple[str, ...] = ()
    changes: dict[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    def build(self, *, import_nothing: bool = False) -> konfig.ConfigDict:
        keep = [override.path for override in self.overrides]
        cfg = super().build(import_nothing=import_nothing)
        cfg, changes = self.patch(cfg, keep=keep)
        self.changes.clear()
        self.changes.update(changes)
        return cfg

    def as_flags(self) -> list[str]:
        return [*super().as_flags(), *self.patch_flags]


def take_patch(arguments: Sequence[str]) -> tuple[PatchConfig | None, list[str]]:
    """Take `--patch` and `--patch.name=value` out of the arguments.

    Args:
      arguments: A command line.

    Returns:
      The patch, or `None` if there is no such flag; and the other arguments.

    Raises:
      UsageError: A name or a value is wrong.
    """
    try:
        overrides, others = take_overrides(arguments, "patch")
    except ValueError as error:
        raise UsageError(str(error)) from error
    rest = [argument for argument in others if argument != "--patch"]
    if not overrides and len(rest) == len(others):
        return None, rest
    values = {override.path: _value(override) for override in overrides}
    try:
        return PatchConfig(**values), rest
    except ValueError as error:
        raise UsageError(f"--patch: {error}") from error


def describe_patches() -> str:
    """The flags with their defaults, for `--help`."""
    lines = [
        f"  --patch.{field.name}={field.default}".ljust(36) + field.metadata["help"]
        for field in dataclasses.fields(PatchConfig)
    ]
    return "\n".join(lines)


def _value(override: Override) -> Any:
    fields = {field.name: field for field in dataclasses.fields(PatchConfig)}
    if override.path not in fields:
        close = difflib.get_close_matches(override.path, fields, n=1)
        hint = f" Did you mean --patch.{close[0]}?" if close else ""
        raise UsageError(
            f"{override.flag}: there is no such patch.{hint} There are: "
            f"{', '.join(fields)}."
        )
    if not override.is_text:
        return override.value
    is_bool = isinstance(fields[override.path].default, bool)
    return parse_value(override.value, bool if is_bool else object)
