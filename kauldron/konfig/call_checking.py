"""Checks the stored arguments of a call against the signature of what it calls."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kauldron.konfig.argument_hints import (
    accepted_names,
    missing_decorator,
    missing_names,
    signature_of,
    unexpected_names,
)
from kauldron.konfig.qualnames import did_you_mean
from kauldron.konfig.value_judging import misfit


class ArgumentProblem(NamedTuple):
    """What is wrong with one argument (`name` is None: with the call itself)."""

    name: str | int | None
    message: str
    suggestion: str = ""


def check_call(
    function: Any, positional: list[Any], named: Mapping[str, Any]
) -> Iterator[ArgumentProblem]:
    """What would go wrong if `function` were called with these arguments.

    Args:
      function: A callable. Without a readable signature nothing is found.
      positional: The stored positional arguments.
      named: The stored named arguments.
    """
    if not callable(function):
        yield ArgumentProblem(None, f"{_name(function)} cannot be called.")
        return
    signature = signature_of(function)
    if signature is None:
        return
    yield from _unknown_names(function, signature, positional, named)
    yield from _positional_problems(function, signature.parameters, positional, named)
    missing = missing_names(signature, positional, named)
    if missing:
        names = ", ".join(map(repr, missing))
        yield ArgumentProblem(None, f"{_name(function)} needs {names}.")
    yield from _misfits(function, signature.parameters, positional, named)


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


_Parameters = Mapping[str, inspect.Parameter]
_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _unknown_names(
    function: Any,
    signature: inspect.Signature,
    positional: list[Any],
    named: Mapping[str, Any],
) -> Iterator[ArgumentProblem]:
    accepted = accepted_names(signature)
    listed = f"It accepts: {', '.join(accepted) or 'no named arguments'}."
    for name in unexpected_names(function, positional, named):
        message = f"{_name(function)} has no parameter {name!r}."
        hint = did_you_mean(name, accepted).strip() or missing_decorator(function, name)
        yield ArgumentProblem(name, message, " ".join(filter(None, [hint, listed])))


def _positional_problems(
    function: Any,
    parameters: _Parameters,
    positional: list[Any],
    named: Mapping[str, Any],
) -> Iterator[ArgumentProblem]:
    slots = [p for p in parameters.values() if p.kind in _POSITIONAL]
    takes_more = any(
        p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values()
    )
    if len(positional) > len(slots) and not takes_more:
        yield ArgumentProblem(
            len(slots),
            f"{_name(function)} takes at most {len(slots)} positional arguments, "
            f"{len(positional)} are given.",
        )
    for index, slot in enumerate(slots[: len(positional)]):
        if slot.name in named and slot.kind is not inspect.Parameter.POSITIONAL_ONLY:
            yield ArgumentProblem(
                slot.name,
                f"{slot.name!r} is given by position and by name.",
                f"Set [{index}] instead.",
            )


# ------------------------------------------------------------------------------------
# Values against annotations
# ------------------------------------------------------------------------------------


def _misfits(
    function: Any,
    parameters: _Parameters,
    positional: list[Any],
    named: Mapping[str, Any],
) -> Iterator[ArgumentProblem]:
    for place, parameter, value in _pairs(parameters, positional, named):
        if _equals_default(value, parameter.default):
            continue
        problem = misfit(value, _annotation(function, parameter))
        if problem is not None:
            yield ArgumentProblem(place, f"{parameter.name}: {problem}.")


def _pairs(
    parameters: _Parameters, positional: list[Any], named: Mapping[str, Any]
) -> Iterator[tuple[str | int, inspect.Parameter, Any]]:
    slots = [p for p in parameters.values() if p.kind in _POSITIONAL]
    for index, (slot, value) in enumerate(zip(slots, positional)):
        yield index, slot, value
    for name, value in named.items():
        if name in parameters and parameters[name].kind not in _VARIADIC:
            yield name, parameters[name], value


def _equals_default(value: Any, default: Any) -> bool:
    """A parameter accepts its own default, whatever its annotation says."""
    try:
        return type(value) is type(default) and bool(value == default)
    except Exception:  # an array, say
        return False


def _annotation(function: Any, parameter: inspect.Parameter) -> Any:
    """The evaluated annotation; one that cannot be evaluated says nothing."""
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return object
    if not isinstance(annotation, str):
        return annotation
    for namespace in _namespaces(function, parameter.name):
        try:
            return eval(annotation, namespace)
        except Exception:
            continue
    return object


def _namespaces(function: Any, name: str) -> Iterator[dict[str, Any]]:
    """Where the annotation of a parameter may have been written, likeliest first."""
    classes: tuple[type, ...] = (
        inspect.getmro(function) if isinstance(function, type) else ()
    )
    for cls in classes:  # a field of a dataclass is annotated where it is declared
        if name in vars(cls).get("__annotations__", {}):
            yield dict(vars(sys.modules.get(cls.__module__, sys)))
    target: Callable[..., Any] = inspect.unwrap(function)
    if isinstance(target, type):
        target = target.__init__
    yield dict(getattr(target, "__globals__", {}))
