"""Reads a command line, finds the command and runs it."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import NoReturn

from kauldron.cli.commands import BAD_INPUT, COMMANDS, DEFAULT_COMMAND, OK, Command
from kauldron.cli.usage_errors import UsageError, tell

_DESCRIPTION = """\
usage: kauldron <command> --cfg=config.py [--cfg.path=value ...] [options]

Commands:
{commands}

The config, for every command that takes one:
  --cfg=FILE            a config file (its get_config() is called), file.py:arguments,
                        a dotted module, or a saved config.json
  --cfg.a.b[0]=VALUE    override a field; `kauldron config paths` lists them
  --cfg.a='py::m.f(1)'  override a field with a call

`kauldron <command> --help` tells more about a command.
Exit codes: 0 done, 1 problems or differences were found, 2 bad input.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that a command line names.

    Args:
      argv: The arguments without the program; those of this process if not given.

    Returns:
      The exit code: 0 done, 1 problems or differences were found, 2 bad input.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    show_traceback = "--traceback" in arguments
    try:
        return _run(arguments)
    except UsageError as error:
        tell(error, show_traceback=show_traceback)
        return BAD_INPUT
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stderr.close()
        return OK


def _run(arguments: list[str]) -> int:
    words, rest = take_command(arguments)
    if words not in COMMANDS:
        return _help_or_complain(words, rest)
    command = COMMANDS[words]
    return run_command(words, command, rest)


def run_command(words: tuple[str, ...], command: Command, rest: list[str]) -> int:
    """Parses the options of one command and runs it."""
    from kauldron.cli.config_loading import source_from_arguments

    module = command.load()
    parser = _Parser(
        prog=f"kauldron {' '.join(words)}",
        usage=f"kauldron {' '.join(words)} {_config_usage(command)} [options]",
        description=command.summary + ".",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--traceback", action="store_true", help="show the traceback of an error"
    )
    module.add_arguments(parser)
    if any(argument in ("-h", "--help") for argument in rest):
        parser.print_help()
        return OK
    sources = {}
    for name in command.configs:
        sources[name], rest = source_from_arguments(rest, name)
    args = parser.parse_args(rest, argparse.Namespace(**sources))
    for name, source in sources.items():
        if source.file is None:
            parser.error(f"--{name}=path/to/config.py is missing.")
    return module.run(args)


def _config_usage(command: Command) -> str:
    return " ".join(f"--{n}=config.py [--{n}.path=value ...]" for n in command.configs)


class _Parser(argparse.ArgumentParser):
    """Tells wrong options as all other wrong input is told."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_usage().rstrip()}")


# ------------------------------------------------------------------------------------
# The name of the command
# ------------------------------------------------------------------------------------


def take_command(arguments: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """Separates the words that name the command from everything else.

    Flags may stand before, between and after the words. Without a command, the words
    that could be meant as one are returned.
    """
    groups = {words[0] for words in COMMANDS}
    first = next((i for i, a in enumerate(arguments) if a in groups), None)
    if first is None:
        has_config = any(a.split("=")[0] in ("--cfg", "-cfg") for a in arguments)
        if has_config and DEFAULT_COMMAND in COMMANDS:
            return DEFAULT_COMMAND, arguments
        words = [a for a in arguments if not a.startswith("-")]
        return tuple(words[:1]), arguments
    group = arguments[first]
    if (group,) in COMMANDS:
        return (group,), arguments[:first] + arguments[first + 1 :]
    for second in range(first + 1, len(arguments)):
        if not arguments[second].startswith("-"):
            words = (group, arguments[second])
            rest = [a for i, a in enumerate(arguments) if i not in (first, second)]
            return words, rest
    return (group,), arguments[:first] + arguments[first + 1 :]


def _help_or_complain(words: tuple[str, ...], rest: list[str]) -> int:
    group = words[0] if words and any(w[0] == words[0] for w in COMMANDS) else None
    if any(argument in ("-h", "--help", "help") for argument in (*words, *rest)):
        print(usage(group), end="")
        return OK
    if not words:
        raise UsageError(
            f"the name of a command is missing.\n\n{usage(group)}".rstrip()
        )
    if len(words) == 1 and group:
        raise UsageError(f"which {group} command?\n\n{usage(group)}".rstrip())
    name = " ".join(words)
    known = [" ".join(w) for w in COMMANDS]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UsageError(f"there is no command {name!r}.{hint}\n\n{usage(group)}".rstrip())


def usage(group: str | None = None) -> str:
    """The text of `--help`: all commands, or those of one group."""
    shown = {w: c for w, c in COMMANDS.items() if group is None or w[0] == group}
    width = max(len(" ".join(words)) for words in shown) + 2
    lines = [f"  {' '.join(w):<{width}}{c.summary}" for w, c in shown.items()]
    return _DESCRIPTION.format(commands="\n".join(lines))
