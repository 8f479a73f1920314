"""Arguments of a config file: the dataclass `ConfigArgs` and what fills it.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class ConfigArgs:
        dataset: str = "mnist"
        layers: int = 2

    def get_config(args=ConfigArgs()):
        ...

Values come from the text after `file.py:` (`dataset="cifar",layers=3`), then from
`--cfg.__args__.layers=3`.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from kauldron.errors import did_you_mean, error_prefix
from kauldron.konfig.overrides.overrides import ARGS_KEY, Override, last_of_each
from kauldron.konfig.overrides.values import parse_value, types_of
from kauldron.konfig.signatures import misfit
from kauldron.konfig.tree.field_types import convert


def config_args_class(module: ModuleType) -> type | None:
    """Return the `ConfigArgs` dataclass of a config module, if it has one."""
    cls = vars(module).get("ConfigArgs")
    return cls if isinstance(cls, type) and dataclasses.is_dataclass(cls) else None


def build_config_args(cls: type, text: str, overrides: Sequence[Override]) -> Any:
    """Return an instance of `ConfigArgs`."""
    hints = _type_hints(cls)
    values: dict[str, Any] = {}
    for name, source in parse_arguments(text).items():
        with error_prefix(f"{text!r} after the config file: "):
            value = parse_value(source, hints.get(name, object))
            values[name] = _checked(cls, hints, name, value)
    for override in last_of_each(overrides):
        with error_prefix(f"{override.flag}: "):
            name, value = _field_name(override), override.value
            if override.is_text:
                value = parse_value(value, hints.get(name, object))
            values[name] = _checked(cls, hints, name, value)
    return cls(**values)


def _field_name(override: Override) -> str:
    parts = override.parts
    if len(parts) != 2 or not isinstance(parts[1], str):
        raise ValueError(
            f"fields of the arguments are set as a whole, as --cfg.{ARGS_KEY}.name=..."
        )
    return parts[1]


def _checked(cls: type, hints: Mapping[str, Any], name: str, value: Any) -> Any:
    """Return the value of one field, in the form that its annotation asks for."""
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    if name not in names:
        raise ValueError(
            f"ConfigArgs has no field {name!r}.{did_you_mean(name, names)} "
            f"Its fields are: {', '.join(names) or 'none'}."
        )
    annotation = hints.get(name, object)
    value = _converted(value, annotation)
    problem = misfit(value, annotation)
    if problem is not None:
        raise ValueError(f"ConfigArgs.{name}: {problem}.")
    return value


def _converted(value: Any, annotation: Any) -> Any:
    """Return a value in the form its annotation asks for, where nothing is lost."""
    try:
        return convert(value, tuple(types_of(annotation)))
    except TypeError:
        return value  # `misfit` says what is wrong


def _type_hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except Exception:  # an annotation that cannot be evaluated says nothing
        return {}


def parse_arguments(text: str) -> dict[str, str]:
    """Read `name="x",n=3`. The values stay text, to be read by the field's type.

    Raises:
      ValueError: The text is not of this form.

    Example:
      >>> parse_arguments('dataset=imagenet,n=3,sizes=(1,2)')
      {'dataset': 'imagenet', 'n': '3', 'sizes': '(1,2)'}
    """
    if not text.strip():
        return {}
    result: dict[str, str] = {}
    for piece in _split_at_commas(text):
        name, equals, source = (item.strip() for item in piece.partition("="))
        if not equals or not name.isidentifier():
            raise ValueError(
                f"Cannot read {piece.strip()!r} in {text!r}: the text after the config "
                "file is written as name=value,name=value."
            )
        if name in result:
            raise ValueError(f"{name!r} is given twice in {text!r}.")
        result[name] = source
    return result


# Texts in quotes, and the characters that matter outside of them.
_MARKS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[()\[\]{},'"]""", re.S)


def _split_at_commas(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes; a trailing one is allowed."""
    pieces, depth, start, is_open = [], 0, 0, False
    for match in _MARKS.finditer(text):
        mark = match[0]
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif mark in "'\"":  # no text in quotes begins here
            is_open = True
        elif mark == "," and depth == 0:
            pieces.append(text[start : match.start()])
            start = match.end()
    if depth or is_open:
        raise ValueError(f"Brackets or quotes are not closed in {text!r}.")
    pieces.append(text[start:])
    return pieces if pieces[-1].strip() else pieces[:-1]
