"""`--jax_debug_nans=true` and all other settings of jax."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from kauldron.cli.usage_errors import UsageError
from kauldron.konfig.override_values import parse_value


def take_jax_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate `--jax_...` from all other arguments.

    Example:
      >>> take_jax_flags(["--jax_debug_nans", "word"])
      (['--jax_debug_nans'], ['word'])
    """
    flags = [argument for argument in arguments if argument.startswith("--jax_")]
    return flags, [argument for argument in arguments if argument not in flags]


def apply_jax_flags(flags: Sequence[str]) -> None:
    """Change the settings of jax.

    Raises:
      UsageError: There is no such setting, or it cannot have that value.
    """
    if not flags:
        return
    import jax

    for flag in flags:
        name, equals, text = flag.removeprefix("--").partition("=")
        known = jax.config.values
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean --{close[0]}?" if close else ""
            raise UsageError(f"{flag}: jax has no such setting.{hint}")
        value = parse_value(text, type(known[name])) if equals else True
        try:
            jax.config.update(name, value)
        except (TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{flag}: {error}") from error
