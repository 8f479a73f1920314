"""Explains arguments that no command understands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def explain(
    unknown: Sequence[str],
    arguments: Sequence[str],
    configs: Iterable[str],
    options: Iterable[str],
) -> str:
    """What is wrong with arguments, and what was probably meant.

    Args:
      unknown: The arguments that were not understood.
      arguments: All arguments, in order.
      configs: The names of the flags that give a config, such as `cfg`.
      options: The options of the command.
    """
    names = list(configs)
    flags = [f"--{name}" for name in names]
    lines = []
    for argument in unknown:
        hint = (
            _value_after_space(argument, arguments, flags)
            or _missing_dashes(argument, names)
            or _missing_flag(argument, flags)
            or _misspelt(argument, [*flags, *options])
        )
        lines.append(f"{argument!r} is not understood.{hint}")
    return "\n".join(lines)


def _value_after_space(
    argument: str, arguments: Sequence[str], flags: Sequence[str]
) -> str:
    at = list(arguments).index(argument) if argument in arguments else 0
    before = arguments[at - 1] if at > 0 else ""
    is_override = before.startswith(tuple(f"{flag}." for flag in flags))
    if argument.startswith("-") or not is_override or "=" in before:
        return ""
    return f" The value of an override follows a '=': write {before}={argument}"


def _missing_dashes(argument: str, names: Sequence[str]) -> str:
    starts = tuple(f"{name}{sign}" for name in names for sign in (".", "="))
    return f" Did you mean --{argument}?" if argument.startswith(starts) else ""


def _missing_flag(argument: str, flags: Sequence[str]) -> str:
    is_file = argument.partition(":")[0].endswith((".py", ".json"))
    return f" Did you mean {flags[0]}={argument}?" if is_file and flags else ""


def _misspelt(argument: str, flags: Sequence[str]) -> str:
    if not argument.startswith("-"):
        return ""
    end = min((argument.find(c) for c in ".=[" if c in argument), default=len(argument))
    close = difflib.get_close_matches(argument[:end], flags, n=1)
    return f" Did you mean {close[0]}{argument[end:]}?" if close else ""
