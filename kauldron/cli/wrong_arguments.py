"""Explains arguments that no command understands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

# Those of `kd.train.Trainer`, which takes seconds to import.
TRAINER_FIELDS = [
    "seed",
    "workdir",
    "train_ds",
    "eval_ds",
    "model",
    "rng_streams",
    "sharding",
    "num_train_steps",
    "stop_after_steps",
    "log_metrics_every",
    "log_summaries_every",
    "train_losses",
    "train_metrics",
    "train_summaries",
    "writer",
    "profiler",
    "checkify_error_categories",
    "schedules",
    "optimizer",
    "checkpointer",
    "init_transform",
    "exporter",
    "trainstep",
    "evals",
    "aux",
    "setup",
    "xm_job",
    "raw_cfg",
    "on_nonfinite",
    "steps_per_dispatch",
]


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
    remaining = list(unknown)
    while remaining:
        argument = remaining.pop(0)
        if _is_field_before_value(argument, remaining):
            argument = f"{argument}={remaining.pop(0)}"
        hint = (
            _value_after_space(argument, arguments, flags)
            or _missing_dashes(argument, names)
            or _missing_flag(argument, flags)
            or _field(argument, flags, cutoff=1.0)
            or _misspelt(argument, [*flags, *options])
            or _field(argument, flags, cutoff=0.8)
        )
        lines.append(f"{argument!r} is not understood.{hint}")
    return "\n".join(lines)


def _is_field_before_value(argument: str, following: Sequence[str]) -> bool:
    """Whether it is `--num_train_steps` of `--num_train_steps 500`."""
    has_value = bool(following) and not following[0].startswith("-")
    return has_value and "=" not in argument and bool(_field(argument, ["--cfg"], 1.0))


def _field(argument: str, flags: Sequence[str], cutoff: float) -> str:
    """`--workdir=run` for `--cfg.workdir=run`."""
    if not argument.startswith("-") or not flags:
        return ""
    name, rest = _split(argument.lstrip("-"))
    close = difflib.get_close_matches(name, TRAINER_FIELDS, n=1, cutoff=cutoff)
    return f" Did you mean {flags[0]}.{close[0]}{rest}?" if close else ""


def _split(argument: str) -> tuple[str, str]:
    """The first name of a flag, and all that follows."""
    end = min((argument.find(c) for c in ".=[" if c in argument), default=len(argument))
    return argument[:end], argument[end:]


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
    name, rest = _split(argument)
    close = difflib.get_close_matches(name, flags, n=1)
    return f" Did you mean {close[0]}{rest}?" if close else ""
