"""Read a command line, find the command and run it.

Only what every command needs is imported here: `kauldron --help` must be quick.
"""

from __future__ import annotations

import argparse
import errno
import pathlib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from kauldron import __version__
from kauldron.cli.command_table import (
    BAD_INPUT,
    COMMANDS,
    DEFAULT_COMMAND,
    FAILED,
    INTERRUPTED,
    OK,
    Implementation,
)
from kauldron.cli.terminal import UsageError, short_warnings, tell
from kauldron.errors import nearest, reader_is_gone
from kauldron.job_params import TRAINER_FIELDS

_DESCRIPTION = """\
usage: kauldron <command> --cfg=config.py [--cfg.path=value ...] [options]

Commands:
{commands}

The config, for every command that takes one:
  --cfg=FILE            a config file (its get_config() is called), file.py:arguments,
                        a dotted module, or a saved config.json
  --cfg.a.b[0]=VALUE    override a field; `kauldron config paths` lists them
  --cfg.a='py::m.f(1)'  override a field with a call
  --patch.NAME=VALUE    make the config small for a quick try; `--patch` for all
                        defaults, `kauldron run --help` lists the names
  --jax_NAME=VALUE      a setting of jax, such as --jax_debug_nans=true

`kauldron <command> --help` tells more about a command, `kauldron --version` the version.
Exit codes: 0 done, 1 an error, problems or differences, 2 bad input, 130 Ctrl-C,
143 stopped by SIGTERM.
"""


_PATCHES = """
Patches, with the values they have once any --patch flag is given. What --cfg.path=value
sets is not patched:
{patches}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that a command line names.

    Args:
      argv: The arguments without the program; those of this process if not given.

    Returns:
      The exit code: 0 done, 1 problems or differences were found, 2 bad input, 130
      stopped by Ctrl-C.

    Raises:
      SystemExit: A run saved its state and stopped because it was asked to (143).
      Exception: What a run raises.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _with_flag_files(arguments)
        with short_warnings():
            code = _run(arguments)
        sys.stdout.flush()
        return code
    except UsageError as error:
        tell(error, show_traceback=_asks_for_traceback(arguments))
        return BAD_INPUT
    except KeyboardInterrupt as error:
        print(f"\nInterrupted. {error}".rstrip(), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if not reader_is_gone():
            raise
        return OK
    except OSError as error:
        if _asks_for_traceback(arguments) or error.errno not in _OF_THE_DISK:
            raise
        tell(error, show_traceback=False)
        return FAILED


# A full or read-only disk: a traceback would not help.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def _asks_for_traceback(arguments: list[str]) -> bool:
    return not {"--traceback", "--xp.traceback"}.isdisjoint(arguments)


def _with_flag_files(arguments: Sequence[str]) -> list[str]:
    """Put the lines of `--flagfile=path` in its place; for very long values."""
    result: list[str] = []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if name != "--flagfile" or not equals:
            result.append(argument)
            continue
        try:
            result += pathlib.Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{argument}: {error}") from error
    return result


def _run(arguments: list[str]) -> int:
    words, rest = _take_command(arguments)
    if words not in COMMANDS:
        return _help_or_complain(words, rest)
    from kauldron.cli.loading import source_from_arguments, with_trust
    from kauldron.cli.patch import take_patch

    implementation = COMMANDS[words].load()
    configs = implementation.configs
    parser = make_parser(words)
    if any(argument in ("-h", "--help") for argument in rest):
        parser.print_help()
        return OK
    sources, others = {}, rest
    for name in configs:
        sources[name], others = source_from_arguments(others, name)
    if configs:
        sources[configs[0]], others = take_patch(sources[configs[0]], others)
    others = _with_values_that_begin_with_a_dash(others, parser)
    args, unknown = parser.parse_known_args(others, argparse.Namespace(**sources))
    jax_flags = [flag for flag in unknown if flag.startswith("--jax_")]
    if len(jax_flags) < len(unknown):
        unknown = [argument for argument in unknown if argument not in jax_flags]
        parser.error(_explain(unknown, rest, configs, parser.flags))
    for name, source in sources.items():
        if source.file is None and implementation.needs_configs:
            parser.error(f"--{name}=path/to/config.py is missing.")
    _apply_jax_flags(jax_flags)
    if not configs:
        return implementation.run(args)
    files = [source.file for source in sources.values() if source.file]
    file = files[0] if files else vars(args).get("workdir")
    with with_trust(file, allow=args.allow, trust=args.trust):
        return implementation.run(args)


def _with_values_that_begin_with_a_dash(
    arguments: Sequence[str], parser: CommandParser
) -> list[str]:
    """Let `--sort -loss` mean `--sort=-loss`, unless `-l` is an option."""
    joined: list[str] = []
    for argument in arguments:
        is_after_option = bool(joined) and re.fullmatch(r"--[\w-]+", joined[-1])
        if (
            is_after_option
            and re.match(r"-[^-\d]", argument)
            and argument[:2] not in parser.flags
        ):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors look like those of all other bad input."""

    @property
    def flags(self) -> list[str]:
        """The flags of all options, such as `--json`."""
        return [flag for action in self._actions for flag in action.option_strings]

    @property
    def words(self) -> list[str]:
        """The arguments without a flag, as the usage shows them: `NAME`, `[FOLDER]`."""
        forms = {"?": "[{}]", "+": "{} ...", "*": "[{} ...]"}
        return [
            forms.get(str(a.nargs), "{}").format(a.metavar or a.dest.upper())
            for a in self._actions
            if not a.option_strings
        ]

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_usage().rstrip()}")


def make_parser(words: tuple[str, ...]) -> CommandParser:
    """Return the parser of the options of a command."""
    from kauldron.cli.loading import add_trust_arguments

    implementation = COMMANDS[words].load()
    parser = CommandParser(
        prog=f"kauldron {' '.join(words)}",
        description=COMMANDS[words].summary + ".",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--traceback", action="store_true", help="show the traceback of an error"
    )
    implementation.add_arguments(parser)
    if implementation.configs:
        add_trust_arguments(parser)
    configs, arguments = _usage_of_configs(implementation), parser.words
    parts = [*configs, *arguments]
    if not implementation.needs_configs:
        parts = [*arguments, *configs]
    parser.usage = " ".join(["kauldron", *words, *parts, "[options]"])
    return parser


def _usage_of_configs(implementation: type[Implementation]) -> list[str]:
    file = "--{0}=config.py" if implementation.needs_configs else "[--{0}=config.py]"
    forms = dict.fromkeys(implementation.configs, f"{file} [--{{0}}.path=value ...]")
    if "sweep" in forms:
        forms["sweep"] = "--{0}.path=values ..."
    return [form.format(name) for name, form in forms.items()]


#
# The name of the command
#


def _take_command(arguments: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """Separate the words that name the command from everything else.

    Flags may stand before, between and after the words. Without a command, the words
    that could be meant as one are returned.
    """
    groups = {words[0] for words in COMMANDS}
    first = next((i for i, a in enumerate(arguments) if a in groups), None)
    if first is None:
        words = _words(arguments)
        has_config = any(a.split("=")[0] in ("--cfg", "-cfg") for a in arguments)
        if has_config and not words:
            return DEFAULT_COMMAND, arguments
        return tuple(words[:2]), arguments
    group = arguments[first]
    if (group,) in COMMANDS:
        return (group,), arguments[:first] + arguments[first + 1 :]
    later = range(first + 1, len(arguments))
    known = (i for i in later if (group, arguments[i]) in COMMANDS)
    second = next(known, None) or next(
        (i for i in later if arguments[i][:1] != "-"), first
    )
    words = (group,) if second == first else (group, arguments[second])
    return words, [a for i, a in enumerate(arguments) if i not in (first, second)]


def _words(arguments: list[str]) -> list[str]:
    """Return the arguments that are neither flags nor possibly the value of one."""
    before = ["=", *arguments]
    pairs = zip(before, arguments)
    return [a for b, a in pairs if a[:1] != "-" and (b[:1] != "-" or "=" in b)]


def _help_or_complain(words: tuple[str, ...], rest: list[str]) -> int:
    group = words[0] if words and any(w[0] == words[0] for w in COMMANDS) else None
    if any(argument in ("-h", "--help", "help") for argument in (*words, *rest)):
        print(usage(group), end="")
        return OK
    if rest == ["--version"]:
        print(f"kauldron {__version__}")
        return OK
    if not words:
        raise UsageError(
            f"the name of a command is missing.\n\n{usage(group)}".rstrip()
        )
    if len(words) == 1 and group:
        raise UsageError(f"which {group} command?\n\n{usage(group)}".rstrip())
    raise UsageError(
        f"there is no command {' '.join(words)!r}.{_did_you_mean(words)} "
        "`kauldron --help` lists the commands."
    )


def _did_you_mean(words: tuple[str, ...]) -> str:
    close = [" ".join(w) for w in COMMANDS if w[-1] == words[0]]
    if not close:
        known = [" ".join(w) for w in COMMANDS]
        tries = (" ".join(words), words[0])
        close = [c for t in tries for c in nearest(t, known)][:1]
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def usage(group: str | None = None) -> str:
    """Return the text of `--help`: all commands, or those of one group."""
    shown = {w: c for w, c in COMMANDS.items() if group is None or w[0] == group}
    width = max(len(" ".join(words)) for words in shown) + 2
    lines = [f"  {' '.join(w):<{width}}{c.summary}" for w, c in shown.items()]
    text = _DESCRIPTION.format(commands="\n".join(lines))
    if group == "run":
        from kauldron.cli.patch import describe_patches

        text += _PATCHES.format(patches=describe_patches())
    return text


#
# Settings of jax: `--jax_debug_nans=true`
#


def _apply_jax_flags(flags: Sequence[str]) -> None:
    if not flags:
        return
    import jax

    from kauldron.konfig.overrides.values import parse_value

    for flag in flags:
        name, equals, text = flag.removeprefix("--").partition("=")
        known = jax.config.values
        if name not in known:
            hint = _suggest(nearest(name, known), before="--")
            raise UsageError(f"{flag}: jax has no such setting.{hint}")
        value = parse_value(text, type(known[name])) if equals else True
        try:
            jax.config.update(name, value)
        except (TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{flag}: {error}") from error


#
# Arguments that no command understands
#


def _explain(
    unknown: Sequence[str],
    arguments: Sequence[str],
    names: Sequence[str],
    options: Iterable[str],
) -> str:
    """Say for each unknown argument what was probably meant, given the configs' names."""
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


def _value_after_space(
    argument: str, arguments: Sequence[str], flags: Sequence[str]
) -> str:
    at = arguments.index(argument) if argument in arguments else 0
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
    return _suggest(nearest(name, flags), after=rest)


def _is_field_before_value(argument: str, following: Sequence[str]) -> bool:
    """Tell `--num_train_steps` of `--num_train_steps 500` from other arguments."""
    has_value = bool(following) and not following[0].startswith("-")
    return has_value and "=" not in argument and bool(_field(argument, ["--cfg"], 1.0))


def _field(argument: str, flags: Sequence[str], cutoff: float) -> str:
    """Suggest `--cfg.workdir=run` for `--workdir=run`."""
    if not argument.startswith("-") or not flags:
        return ""
    name, rest = _split(argument.lstrip("-"))
    close = nearest(name, TRAINER_FIELDS, cutoff=cutoff)
    return _suggest(close, before=f"{flags[0]}.", after=rest)


def _split(argument: str) -> tuple[str, str]:
    """Split a flag into its first name and all that follows."""
    end = min((argument.find(c) for c in ".=[" if c in argument), default=len(argument))
    return argument[:end], argument[end:]


def _suggest(close: Sequence[str], *, before: str = "", after: str = "") -> str:
    return f" Did you mean {before}{close[0]}{after}?" if close else ""


if __name__ == "__main__":  # otherwise `python -m kauldron.cli.main` would do nothing
    sys.exit(main())
