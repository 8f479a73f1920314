"""What is called, and whether the stored arguments of a call fit its signature."""

from __future__ import annotations

import collections.abc
import contextlib
import contextvars
import enum
import functools
import inspect
import os
import pathlib
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kauldron.errors import declaring_class, did_you_mean
from kauldron.konfig.symbols import import_qualname, split_qualname

POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def known_signature(qualname: str) -> inspect.Signature | None:
    """Return the signature of a symbol; None if it is not loaded or has none.

    Inside `importing_symbols` the symbol is imported.
    """
    try:
        return signature_of(_symbol(qualname))
    except Exception:  # whoever checks or resolves it will say so
        return None


def _symbol(qualname: str) -> Any:
    if _imports_symbols.get():
        return import_qualname(qualname)
    module, attributes = split_qualname(qualname)
    return functools.reduce(getattr, (attributes or "").split("."), sys.modules[module])


_imports_symbols = contextvars.ContextVar("imports_symbols", default=False)


@contextlib.contextmanager
def importing_symbols(enabled: bool = True) -> Iterator[None]:
    """Allow importing what is called, to know its parameters, inside the block."""
    token = _imports_symbols.set(enabled)
    try:
        yield
    finally:
        _imports_symbols.reset(token)


def signature_of(symbol: Any) -> inspect.Signature | None:
    """Return the signature of a callable, or `None` if it has none."""
    try:
        return inspect.signature(symbol)
    except (TypeError, ValueError):
        return None


def accepted_names(signature: inspect.Signature) -> list[str]:
    """Return the names to offer as keywords: internal ones are left out."""
    return [name for name in _keywords(signature.parameters) if name[0] != "_"]


def _keywords(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters.values() if p.kind in kinds]


class ArgumentProblem(NamedTuple):
    """What is wrong with one argument (`name` is None: with the call itself)."""

    name: str | int | None
    message: str
    suggestion: str = ""


def check_call(
    function: Any, positional: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[ArgumentProblem]:
    """Yield what would go wrong if `function` were called with these arguments."""
    if not callable(function):
        yield ArgumentProblem(None, f"{_name(function)} cannot be called.")
        return
    signature = signature_of(function)
    if signature is None:
        return
    parameters = signature.parameters
    yield from _unknown_names(function, signature, named)
    slots = [p for p in parameters.values() if p.kind in POSITIONAL]
    kinds = {p.kind for p in parameters.values()}
    if len(positional) > len(slots) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        yield ArgumentProblem(
            len(slots),
            f"{_name(function)} takes at most {len(slots)} positional arguments, "
            f"{len(positional)} are given.",
        )
    by_position = slots[: len(positional)]
    for index, slot in enumerate(by_position):
        if slot.name in named and slot.kind is not inspect.Parameter.POSITIONAL_ONLY:
            yield ArgumentProblem(
                slot.name,
                f"{slot.name!r} is given by position and by name.",
                f"Set [{index}] instead.",
            )
    given = {*(slot.name for slot in by_position), *named}
    needed = [
        repr(p.name)
        for p in parameters.values()
        if p.kind not in _VARIADIC and p.default is p.empty and p.name not in given
    ]
    if needed:
        yield ArgumentProblem(None, f"{_name(function)} needs {', '.join(needed)}.")
    for index, (slot, value) in enumerate(zip(slots, positional)):
        yield from _misfit_of(function, index, slot, value)
    for name, value in named.items():
        if name in parameters and parameters[name].kind not in _VARIADIC:
            yield from _misfit_of(function, name, parameters[name], value)


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _unknown_names(
    function: Any, signature: inspect.Signature, named: Mapping[str, Any]
) -> Iterator[ArgumentProblem]:
    parameters = signature.parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    keywords, accepted = _keywords(parameters), accepted_names(signature)
    listed = f"It accepts: {', '.join(accepted) or 'no named arguments'}."
    for name in named:
        if name not in keywords:
            message = f"{_name(function)} has no parameter {name!r}."
            hint = did_you_mean(name, accepted).strip()
            hint = hint or _missing_decorator(function, name)
            yield ArgumentProblem(name, message, " ".join(filter(None, [hint, listed])))


def _missing_decorator(symbol: Any, name: str) -> str:
    """Return what to do if a class declares an argument but does not take it."""
    owner = declaring_class(symbol, name) if isinstance(symbol, type) else None
    if owner is None:
        return ""
    return (
        "The class declares it: write `@dataclasses.dataclass(frozen=True, "
        f"kw_only=True)` above `class {owner.__name__}`."
    )


# ------------------------------------------------------------------------------------
# Values against annotations
# ------------------------------------------------------------------------------------


def _misfit_of(
    function: Any, place: str | int, parameter: inspect.Parameter, value: Any
) -> Iterator[ArgumentProblem]:
    if not _equals_default(value, parameter.default):
        problem = misfit(value, _annotation(function, parameter))
        if problem is not None:
            yield ArgumentProblem(place, f"{parameter.name}: {problem}.")


def _equals_default(value: Any, default: Any) -> bool:
    """Return whether it is the default, which fits whatever the annotation says."""
    try:
        return type(value) is type(default) and bool(value == default)
    except Exception:  # an array, say
        return False


def _annotation(function: Any, parameter: inspect.Parameter) -> Any:
    """Return the evaluated annotation; one that cannot be evaluated says nothing."""
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
    """Yield where an annotation may have been written, likeliest first."""
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


# Only annotations that plain data can be judged by take part: `int`, `float`, `str`,
# `bool`, `bytes`, paths, `None`, `Literal`, enums, unions and the built-in containers of
# these. Everything else (classes of the user, type variables, arrays, annotations that
# cannot be evaluated) accepts any value.

_CONTAINERS: dict[Any, tuple[type, ...]] = {
    list: (list, tuple),  # a list arrives as a tuple, and both spell one thing
    tuple: (list, tuple),
    set: (set, frozenset),
    frozenset: (set, frozenset),
    collections.abc.Sequence: (list, tuple, str),
    collections.abc.Collection: (list, tuple, set, frozenset, str, Mapping),
    collections.abc.Iterable: (list, tuple, set, frozenset, str, Mapping),
    collections.abc.Set: (set, frozenset),
    dict: (Mapping,),
    collections.abc.Mapping: (Mapping,),
    collections.abc.MutableMapping: (Mapping,),
}
_JUDGED_BY_CLASS = frozenset({type(None), bool, int, str, bytes})
_NUMBERS: dict[type, tuple[type, ...]] = {
    float: (int, float),
    complex: (int, float, complex),
}


def misfit(value: Any, annotation: Any) -> str | None:
    """Return what was expected and what was found, or None if a value fits.

    >>> misfit("abc", int | None)
    "expected int | None, got str 'abc'"
    >>> misfit([1, "x"], tuple[int, ...])
    "item [1]: expected int, got str 'x'"
    >>> misfit(3, float) is None
    True
    """
    if _is_opaque(value):
        return None
    if annotation is None:
        annotation = type(None)
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return misfit(value, typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return _union_misfit(value, annotation)
    if origin is Literal:
        return _literal_misfit(value, annotation)
    if (origin or annotation) in _CONTAINERS:
        return _container_misfit(value, annotation, origin or annotation)
    if isinstance(annotation, type):
        return None if _is_instance(value, annotation) else _report(value, annotation)
    return None


def _is_opaque(value: Any) -> bool:
    """Return whether only `resolve` will tell what this value is."""
    if isinstance(value, Mapping):
        return "__qualname__" in value or "__const__" in value
    known = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset)
    return not (value is None or value is ... or isinstance(value, known))


def _is_instance(value: Any, annotation: type) -> bool:
    """Return whether plain data may be passed where `annotation` stands."""
    if annotation in _JUDGED_BY_CLASS:
        return isinstance(value, annotation)
    if annotation in _NUMBERS:
        return isinstance(value, _NUMBERS[annotation]) and not isinstance(value, bool)
    if issubclass(annotation, enum.Enum):
        # A member is stored as a constant; a mixin such as StrEnum is its plain value.
        mixin = issubclass(annotation, (str, int))
        return mixin and any(value == member for member in annotation)
    if issubclass(annotation, pathlib.PurePath) or annotation is os.PathLike:
        return isinstance(value, str)
    return True


def _union_misfit(value: Any, annotation: Any) -> str | None:
    if any(misfit(value, member) is None for member in typing.get_args(annotation)):
        return None
    return _report(value, annotation)


def _literal_misfit(value: Any, annotation: Any) -> str | None:
    allowed = typing.get_args(annotation)
    if any(value == item and type(value) is type(item) for item in allowed):
        return None
    if any(isinstance(item, enum.Enum) for item in allowed):
        return None
    choices = ", ".join(map(repr, allowed))
    return f"expected one of {choices}, got {_shown(value)}"


def _container_misfit(value: Any, annotation: Any, origin: Any) -> str | None:
    accepted = _CONTAINERS[origin]
    if not isinstance(value, accepted):
        return _report(value, annotation)
    arguments = typing.get_args(annotation)
    if not arguments or isinstance(value, str):
        return None
    if isinstance(value, Mapping):
        return _mapping_misfit(value, arguments)
    if origin is tuple and arguments[-1] is not ...:
        return _fixed_tuple_misfit(value, annotation, arguments)
    return _first_misfit((f"[{i}]", item, arguments[0]) for i, item in enumerate(value))


def _mapping_misfit(value: Mapping[Any, Any], arguments: tuple[Any, ...]) -> str | None:
    if len(arguments) != 2:
        return None
    return _first_misfit((f"[{k!r}]", v, arguments[1]) for k, v in value.items())


def _fixed_tuple_misfit(
    value: Any, annotation: Any, arguments: tuple[Any, ...]
) -> str | None:
    if any(typing.get_origin(item) is typing.Unpack for item in arguments):
        return None
    expected = () if arguments == ((),) else arguments
    if len(value) != len(expected):
        return f"{_report(value, annotation)} of length {len(value)}"
    return _first_misfit(
        (f"[{i}]", item, kind) for i, (item, kind) in enumerate(zip(value, expected))
    )


def _first_misfit(items: typing.Iterable[tuple[str, Any, Any]]) -> str | None:
    for place, item, annotation in items:
        problem = misfit(item, annotation)
        if problem is not None:
            return f"item {place}: {problem}"
    return None


def _report(value: Any, annotation: Any) -> str:
    return f"expected {_annotation_name(annotation)}, got {_shown(value)}"


def _annotation_name(annotation: Any) -> str:
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return re.sub(r"(?<![\w.])(typing|collections\.abc)\.", "", str(annotation))


def _shown(value: Any) -> str:
    text = repr(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return "None" if value is None else f"{type(value).__name__} {text}"
