"""Where a config came from, to be shown with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kauldron.konfig.config_sources import ConfigSource
from kauldron.konfig.overriding import last_of_each


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
        """The origin of what a command line gave, after it was built."""
        overrides = {o.path: o.value for o in last_of_each(source.overrides)}
        return cls(source.file, overrides, getattr(source, "changes", {}))

    def summary(self, include_patches: bool = True) -> str:
        """One line for each thing that there is."""
        lines = [f"--cfg={self.filename}"] if self.filename else []
        for path, value in self.overrides.items():
            dot = "" if path.startswith("[") else "."
            lines.append(f"--cfg{dot}{path}={value}")
        if include_patches:
            lines += [f"patched: {path}={v}" for path, v in self.patches.items()]
        return "\n".join(lines)
