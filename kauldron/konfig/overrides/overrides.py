"""Overrides: `--cfg.a.b=v` flags and `{"a.b": v}` mappings, and their application."""

from __future__ import annotations

import copy
import dataclasses
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_collections import FieldReference

from kauldron import path_grammar
from kauldron.errors import error_prefix
from kauldron.konfig.overrides.py_expressions import PREFIX, parse_py
from kauldron.konfig.overrides.values import format_value, parse_literal, parse_value
from kauldron.konfig.signatures import importing_symbols
from kauldron.konfig.tree import paths
from kauldron.konfig.tree.history import Kind, recording, short_repr
from kauldron.konfig.tree.node import Node, is_call, is_const

ARGS_KEY = "__args__"

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Override:
    """One override as it was given.

    Attributes:
      path: Canonical text of the path, without the name of the flag.
      value: The text after `=` if `is_text`, else the value itself.
      flag: The flag as typed, for messages and the history.
      is_text: Whether the target's type still has to give the text its meaning.
      is_bare: Whether it was `--cfg.a` or `--nocfg.a`, without a value.
    """

    path: str
    value: Any
    flag: str
    is_text: bool = False
    is_bare: bool = False

    @classmethod
    def of(cls, path: paths.Path, value: Any) -> Override:
        """Return the override that sets a path, as text or parts, to a value."""
        text = path_grammar.format_path(paths.path_parts(path))
        return cls(path=text, value=value, flag=f"{text}={value!r:.80}")

    @property
    def parts(self) -> tuple[path_grammar.Part, ...]:
        return path_grammar.parse(self.path)

    @property
    def parsed(self) -> Any:
        """The value as far as it is known without its target; `py::` stays text."""
        if self.is_text and not self.value.startswith(PREFIX):
            return parse_literal(self.value)
        return self.value

    def as_flag(self, name: str) -> str:
        """Return one line that gives this override to the flag called `name`."""
        start = f"--{name}{'' if self.path.startswith('[') else '.'}{self.path}"
        if self.is_bare:
            return start if self.value else start.replace("--", "--no", 1)
        one_line = self.is_text and self.value.isprintable()
        if one_line and self.value == self.value.strip():
            return f"{start}={self.value}"
        return f"{start}={format_value(self.parsed)}"


# ------------------------------------------------------------------------------------
# Reading the command line
# ------------------------------------------------------------------------------------


def match_override(argument: str, name: str) -> Override | None:
    """Return the override that a command line argument is, or None.

    >>> match_override("--cfg.model.n=3", "cfg").path
    'model.n'
    >>> match_override("--config.n=3", "cfg") is None
    True

    Raises:
      ValueError: It is an override but its path cannot be read.
    """
    match = re.match(
        rf"--?(?P<no>no)?{re.escape(name)}(?P<rest>[.\[].*)", argument, re.S
    )
    if match is None:
        return None
    text, value = path_grammar.split_assignment(match["rest"])
    try:
        parts = path_grammar.parse(text.removeprefix("."))
    except path_grammar.PathSyntaxError as error:
        raise ValueError(f"{argument}: {error}") from None
    if not parts:
        raise ValueError(f"{argument}: the name of a field is missing after the dot.")
    if match["no"] and value is not None:
        raise ValueError(f"{argument}: a flag that starts with --no takes no value.")
    return Override(
        path=path_grammar.format_path(parts),
        value=not match["no"] if value is None else value,
        flag=argument,
        is_text=value is not None,
        is_bare=value is None,
    )


def last_of_each(overrides: Iterable[Override]) -> list[Override]:
    """Return the last override of each path, in the order of these last ones."""
    last: dict[str, Override] = {}
    for override in overrides:
        last.pop(override.path, None)
        last[override.path] = override
    return list(last.values())


# ------------------------------------------------------------------------------------
# Applying
# ------------------------------------------------------------------------------------


def apply_overrides(cfg: Node, overrides: Mapping[str, Any]) -> list[str]:
    """Set the fields that a flat mapping names, as a sweep does.

    Args:
      cfg: The config to change. Unchanged if an error is raised.
      overrides: From path to value. The paths may have wildcards. Texts that start with
        `py::` are expressions, all other values are taken as they are.

    Returns:
      The paths that were set.

    Raises:
      KeyError, TypeError, ValueError: As in `set_by_path`, with the path in front.

    Example:
      >>> from kauldron import konfig
      >>> cfg = konfig.ConfigDict({"model": {"width": 8}, "seed": 0})
      >>> apply_overrides(cfg, {"model.width": 16, "**.seed": 1})
      ['model.width', 'seed']
    """
    items = [Override.of(path, value) for path, value in overrides.items()]
    if len(items) > 1:  # all or nothing: try on a copy first
        apply_in_order(copy.deepcopy(cfg), copy.deepcopy(items), kind="sweep")
    return apply_in_order(cfg, items, kind="sweep")


def apply_in_order(
    cfg: Node,
    overrides: Sequence[Override],
    *,
    kind: Kind = "cli",
    may_import: bool = True,
) -> list[str]:
    """Apply overrides in order; for the same path, the last one wins.

    Where an override names a positional argument by its parameter, what is called is
    imported, unless `may_import` is off.
    """
    overrides = last_of_each(overrides)
    _check_order(overrides)
    written: list[str] = []
    for override in overrides:
        told = error_prefix(f"{override.flag}: ")
        with told, recording(kind, override.flag), importing_symbols(may_import):
            for target in paths.find_targets(cfg, override.parts):
                paths.assign(cfg, target, _value_for(cfg, target, override))
                written.append(path_grammar.format_path(target))
    return written


def _value_for(cfg: Node, target: tuple[Any, ...], override: Override) -> Any:
    """Return the value to assign to one place."""
    if not override.is_text and not override.is_bare:
        is_py = isinstance(override.value, str) and override.value.startswith(PREFIX)
        return parse_py(override.value) if is_py else override.value
    raw: Any = None
    old: Any = None
    parent, last = paths.get_by_path(cfg, target[:-1]), target[-1]
    if paths.has_child(parent, last):
        raw, old = paths.raw_child(parent, last), paths.readable_child(parent, last)
    if override.is_bare:
        _check_takes_bare_flag(old, override)
        return override.value
    declared = type(old)
    if old is None or isinstance(old, FieldReference):  # as far as it is known
        declared = raw.get_type() if isinstance(raw, FieldReference) else object
    value = parse_value(override.value, declared)
    _warn_of_forgotten_prefix(old, value, override)
    return value


def _warn_of_forgotten_prefix(old: Any, value: Any, override: Override) -> None:
    """Warn of a text that replaces a call and looks like one."""
    if not isinstance(value, str) or not re.fullmatch(r"\w+(\.\w+)+(\(.*\))?", value):
        return
    if isinstance(old, Node) and (is_call(old) or is_const(old)):
        call = value if value.endswith(")") or is_const(old) else f"{value}(...)"
        _log.warning(
            "%s: the field held %s and now holds a text. For a call or a name write "
            "%s='%s%s'.",
            override.flag,
            short_repr(old),
            override.flag.split("=")[0],
            PREFIX,
            call,
        )


def _check_takes_bare_flag(old: Any, override: Override) -> None:
    if old is None or isinstance(old, (bool, FieldReference)):
        return
    name = re.split(r"[=\s]", override.flag)[0]
    held = f"{type(old).__name__} {old!r:.40}"
    if not override.value:
        raise TypeError(
            f"{name} is for fields that are True or False; this one is {held}."
        )
    raise TypeError(
        f"needs a value, write {name}=... (the field is {held}; a value after a space "
        "is not read)."
    )


def _check_order(overrides: Sequence[Override]) -> None:
    set_below: dict[str, Override] = {}  # by the paths around what was set
    for override in overrides:
        if override.path in set_below:
            from ml_collections.config_flags import config_flags

            raise config_flags.FlagOrderError(
                f"{override.flag} comes after {set_below[override.path].flag} and would "
                f"undo it. Put {override.flag} first."
            )
        parts = override.parts
        if not paths.has_wildcard(parts):
            for size in range(1, len(parts)):
                path = path_grammar.format_path(parts[:size])
                set_below.setdefault(path, override)
