"""What is said about a call whose arguments do not fit the signature."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from kauldron.konfig.qualnames import did_you_mean


def argument_hint(
    error: Exception, symbol: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str:
    """Wrong or missing arguments with suggestions; empty if the arguments fit."""
    if not callable(symbol):
        return f"{symbol!r} of type {type(symbol).__name__} cannot be called."
    if not isinstance(error, TypeError):
        return ""
    signature = signature_of(symbol)
    if signature is None or _fits(signature, args, kwargs):
        return ""
    lines = [
        f"There is no argument {name!r}.{did_you_mean(name, accepted_names(signature))}"
        for name in unexpected_names(symbol, args, kwargs)
    ]
    missing = missing_names(signature, args, kwargs)
    if missing:
        lines.append(f"Missing: {', '.join(missing)}.")
    lines.append(f"Accepted: {', '.join(accepted_names(signature)) or 'nothing'}.")
    return "\n".join(lines)


def signature_of(symbol: Any) -> inspect.Signature | None:
    """The signature of a callable, or `None` if it tells none."""
    try:
        return inspect.signature(symbol)
    except (TypeError, ValueError):
        return None


def _fits(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def accepted_names(signature: inspect.Signature) -> list[str]:
    """The names to offer as keywords: internal ones are left out."""
    return [name for name in _keywords(signature) if not name.startswith("_")]


def _keywords(signature: inspect.Signature) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in signature.parameters.values() if p.kind in kinds]


def unexpected_names(
    symbol: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[str]:
    """The keywords that a callable does not accept."""
    signature = signature_of(symbol)
    if signature is None or any(
        p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values()
    ):
        return []
    names = _keywords(signature)
    return [name for name in kwargs if name not in names]


def missing_decorator(symbol: Any, name: str) -> str:
    """What to do if a class declares what it does not take; empty if it does not."""
    parents = symbol.__mro__ if isinstance(symbol, type) else ()
    owner = next((p for p in parents if name in inspect.get_annotations(p)), None)
    if owner is None:
        return ""
    return (
        "The class declares it: write `@dataclasses.dataclass(frozen=True, "
        f"kw_only=True)` above `class {owner.__name__}`."
    )


def missing_names(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[str]:
    """The parameters without a default that are not given."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p for p in signature.parameters.values() if p.kind not in variable]
    by_position = [
        p.name for p in named if p.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    given = {*by_position[: len(args)], *kwargs}
    return [p.name for p in named if p.default is p.empty and p.name not in given]
