"""`kauldron completion`: what the shell offers when Tab is pressed."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
from collections.abc import Iterable

from kauldron import konfig, path_grammar
from kauldron.cli.command_table import COMMANDS, DEFAULT_COMMAND, OK, Implementation
from kauldron.cli.loading import load_config, source_from_arguments
from kauldron.cli.main import make_parser
from kauldron.cli.terminal import UsageError
from kauldron.job_params import TRAINER_FIELDS
from kauldron.konfig.query.flatten import iter_leaves

_BASH = """\
_kauldron() {
    local IFS=$'\\n'
    COMPREPLY=($(kauldron completion --line="${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    if [[ "${COMPREPLY[*]}" == *[=.] ]]; then compopt -o nospace; fi
}
complete -o default -F _kauldron kauldron
"""

_ZSH = """\
#compdef kauldron
_kauldron() {
    local -a found
    found=("${(@f)$(kauldron completion --line="${BUFFER[1,CURSOR]}" 2>/dev/null)}")
    found=(${found:#})
    if (( ${#found} )); then
        compadd -Q -S '' -- ${(M)found:#*[=.]}
        compadd -Q -- ${found:#*[=.]}
    else
        compset -P '*='
        _files
    fi
}
if [[ "$funcstack[1]" == "_kauldron" ]]; then _kauldron; else compdef _kauldron kauldron; fi
"""

_FISH = """\
function __kauldron_complete
    set -l found (kauldron completion --line=(commandline -cp | string collect) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        set -l token (commandline -ct)
        set -l flag (string match -r '^--[^=]*=' -- $token)
        for path in (__fish_complete_path (string replace -r '^--[^=]*=' '' -- $token))
            printf '%s%s\\n' "$flag" $path
        end
    end
end
complete -c kauldron -f -a '(__kauldron_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class Completion(Implementation):
    """Print the script that lets a shell complete commands, flags and config paths."""

    configs = ()

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "shell", nargs="?", choices=list(_SCRIPTS), help="the shell to print it for"
        )
        parser.add_argument("--line", help=argparse.SUPPRESS)
        parser.epilog = (
            'bash: eval "$(kauldron completion bash)" in ~/.bashrc. '
            'zsh: eval "$(kauldron completion zsh)" in ~/.zshrc, after compinit. '
            "fish: kauldron completion fish > ~/.config/fish/completions/kauldron.fish"
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        if args.line is not None:
            print("".join(f"{text}\n" for text in complete(args.line)), end="")
            return OK
        if args.shell is None:
            raise UsageError(f"Which shell? One of: {', '.join(_SCRIPTS)}.")
        print(_SCRIPTS[args.shell], end="")
        return OK


def complete(line: str) -> list[str]:
    """Return what the last word of a command line can become.

    Nothing where a value is meant: it may be a file, and shells know those themselves.

    Example:
      >>> complete("kauldron config d")
      ['diff']
    """
    try:
        words = shlex.split(line)
    except ValueError:  # an open quote
        return []
    current = "" if not words or line[-1:].isspace() else words.pop()
    words = words[1:]  # without the program
    named = [word for word in words if not word.startswith("-")]
    command = _command(named)
    if command is None and current.startswith("-"):
        command = DEFAULT_COMMAND
    if command is None:
        found = _next_words(named)
    elif not current.startswith("-") or "=" in current:
        return []
    elif (config := _config_of(current, command)) is not None:
        found = _paths(config, words, current)
    else:
        found = _flags(command)
    return sorted({text for text in found if text.startswith(current)})


def _command(named: list[str]) -> tuple[str, ...] | None:
    """Return the words of the command whose name is complete."""
    candidates = (tuple(named[:length]) for length in (1, 2))
    return next((words for words in candidates if words in COMMANDS), None)


def _next_words(named: list[str]) -> Iterable[str]:
    """Return what can follow the first words of a command."""
    return (
        words[len(named)]
        for words in COMMANDS
        if len(words) > len(named) and list(words[: len(named)]) == named
    )


def _flags(command: tuple[str, ...]) -> Iterable[str]:
    for action in make_parser(command)._actions:
        for flag in action.option_strings:
            takes_value = action.nargs is None and action.metavar != "BOOL"
            if action.help != argparse.SUPPRESS:
                yield f"{flag}=" if takes_value and flag.startswith("--") else flag
    for name in COMMANDS[command].load().configs:
        yield from (f"--{name}=", f"--{name}.")


#
# Paths into the config that the command line names
#


def _config_of(current: str, command: tuple[str, ...]) -> str | None:
    """Return the name of the config whose field is being written."""
    configs = COMMANDS[command].load().configs
    return next((n for n in configs if current.startswith(f"--{n}.")), None)


def _paths(name: str, words: list[str], current: str) -> list[str]:
    """Return the fields one level below what is there already."""
    source = "cfg" if name == "sweep" else name
    start = f"--{name}."
    written = current.removeprefix(start)
    paths = _paths_of_config(source, words)
    if name != "xp" and (not paths or _is_of_trainer(paths)):
        paths += TRAINER_FIELDS
    found = {}
    for path in paths:
        if path.startswith(written):
            end = path.find(".", len(written))
            is_leaf = end < 0
            text = path if is_leaf else path[:end]
            found.setdefault(text, is_leaf)
            found[text] &= is_leaf
    return [
        f"{start}{text}{'=' if is_leaf else '.'}" for text, is_leaf in found.items()
    ]


def _paths_of_config(name: str, words: list[str]) -> list[str]:
    # Pressing Tab must never show what is wrong with the config.
    with contextlib.suppress(Exception):
        source, others = source_from_arguments(words, name)
        if source.file is None:
            source, _ = source_from_arguments(
                [f"--{name}={_saved_config(others)}", *words], name
            )
        cfg: konfig.ConfigDict = load_config(source, import_nothing=True)
        return [
            path_grammar.format_path(parts)
            for parts, _ in iter_leaves(cfg)
            if parts[-1] != "__qualname__"
        ]
    return []


def _is_of_trainer(paths: list[str]) -> bool:
    tops = {path.split(".")[0] for path in paths}
    return bool(tops & {"model", "train_ds", "num_train_steps"})


def _saved_config(words: list[str]) -> str:
    """Return the config of the workdir among the words."""
    folders = [word.removeprefix("--workdir=") for word in words]
    files = (os.path.join(folder, "config.json") for folder in folders)
    return next(file for file in files if os.path.isfile(file))
