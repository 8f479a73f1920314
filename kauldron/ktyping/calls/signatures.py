"""The compiled annotations of a function: arguments, result, what is yielded and sent."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import functools
import inspect
import logging
import sys
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.array_type_meta import is_array_type, is_shape_type
from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.checkers.annotations import (
    Names,
    contains_array_type,
    contains_jaxtyping,
    evaluated_annotations,
    walk_annotation,
)
from kauldron.ktyping.checkers.compiler import Compiler
from kauldron.ktyping.checkers.containers import ContainerChecker, argument_parts
from kauldron.ktyping.config import MISSING, ReportingPolicy, get_config
from kauldron.ktyping.scopes import CodeLocation
from kauldron.ktyping.shapes.matching import SpecSource
from kauldron.ktyping.shapes.parsing import ShapeSpecSyntaxError
from kauldron.ktyping.values import format_annotation

if TYPE_CHECKING:
    from kauldron.ktyping.calls.plan import FunctionPlan


_GENERATORS = (
    collections.abc.Generator,
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
)


@dataclasses.dataclass(frozen=True)
class FunctionCheckers:
    """Compiled annotations. `None` where nothing is checked.

    Attributes:
      arguments: (index, name, checker, whether `None` is fine as it is the default).
      result: Of the return value.
      yielded: Of what a generator yields.
      sent: Of what a generator is sent.
      argument_key: From the arguments to what decides about them; `None` if no memo.
      result_key: The same for the result.
    """

    arguments: tuple[tuple[int, str, c.Checker, bool], ...]
    result: c.Checker | None
    yielded: c.Checker | None
    sent: c.Checker | None
    argument_key: Any
    result_key: Any


def compile_function(plan: FunctionPlan, names: Names) -> FunctionCheckers:
    """Compile the annotations of a function."""
    compiler = Compiler(plan.rules, names)
    arguments = []
    kinds = []
    for index, parameter in enumerate(plan.signature.parameters.values()):
        annotation = plan.annotations.get(parameter.name, MISSING)
        with naming(f"argument {parameter.name!r} of {plan.name}()"):
            checker = _compile_parameter(compiler, parameter, annotation)
        none_is_fine = parameter.default is None
        kinds.append(_memo_kind(checker, none_is_fine))
        if not isinstance(checker, c.AnyChecker):
            arguments.append((index, parameter.name, checker, none_is_fine))
    with naming(f"the return annotation of {plan.name}()"):
        result, yielded, sent = _compile_results(compiler, plan)
    memoizable = c.NOT_MEMOIZABLE not in kinds
    return FunctionCheckers(
        arguments=tuple(arguments),
        result=result,
        yielded=yielded,
        sent=sent,
        argument_key=key_function(tuple(kinds)) if memoizable else None,
        result_key=_result_key(result),
    )


def _memo_kind(checker: c.Checker, none_is_fine: bool) -> str:
    kind = checker.memo_kind
    return c.BY_ANY if none_is_fine and kind == c.BY_ARRAY else kind


def _result_key(checker: c.Checker | None) -> Any:
    if checker is None or checker.memo_kind == c.NOT_MEMOIZABLE:
        return None
    return key_function((checker.memo_kind,))


def _compile_parameter(
    compiler: Compiler, parameter: inspect.Parameter, annotation: Any
) -> c.Checker:
    annotation = compiler.names.evaluated(annotation)
    if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return compiler.compile(annotation)
    if typing.get_origin(annotation) is typing.Unpack:
        return compiler.compile(typing.get_args(annotation)[0])
    if getattr(annotation, "__unpacked__", False):  # `*args: *tuple[int, str]`
        return compiler.compile(annotation)
    container = tuple if parameter.kind is parameter.VAR_POSITIONAL else dict
    item = compiler.compile(annotation)
    if isinstance(item, c.AnyChecker):
        return item
    parts = functools.partial(argument_parts, item)
    return ContainerChecker(annotation, container, parts)


def _compile_results(
    compiler: Compiler, plan: FunctionPlan
) -> tuple[c.Checker | None, c.Checker | None, c.Checker | None]:
    """Return the checkers of (return value, yielded values, sent values)."""
    annotation = compiler.names.evaluated(plan.return_annotation)
    if "generator" not in plan.execution:
        if plan.result_is_replaced:
            return None, None, None
        return _or_nothing(compiler.compile(annotation)), None, None
    origin = typing.get_origin(annotation)
    if origin not in _GENERATORS:
        return None, None, None
    yielded, sent, result = (*typing.get_args(annotation), Any, Any)[:3]
    return (
        _or_nothing(compiler.compile(result)),
        _if_arrays(compiler, yielded),
        _if_arrays(compiler, sent),
    )


def _or_nothing(checker: c.Checker) -> c.Checker | None:
    return None if isinstance(checker, c.AnyChecker) else checker


def _if_arrays(compiler: Compiler, annotation: Any) -> c.Checker | None:
    """Compile what contains arrays: annotations of what is yielded are often sloppy."""
    annotation = compiler.names.evaluated(annotation)
    return compiler.compile(annotation) if contains_array_type(annotation) else None


def validate_specs(function: Any, name: str) -> None:
    """Raise `ShapeSpecSyntaxError` for bad specs, when a function is decorated.

    Annotations that are not evaluated yet (strings) are left alone.
    """
    for parameter, annotation in evaluated_annotations(function).items():
        what = f"argument {parameter!r}"
        if parameter == "return":
            what = "the return annotation"
        validate_annotation(annotation, f"{what} of {name}()")


def validate_annotation(annotation: Any, where: str) -> None:
    """Parse all shape specs in an annotation."""
    for part in walk_annotation(annotation, into_classes=False):
        has_spec = is_array_type(part) or is_shape_type(part)
        if has_spec and part.shape_spec is not MISSING:
            with naming(where):
                SpecSource(part.shape_spec)


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Let syntax errors say what the spec belongs to."""
    try:
        yield
    except ShapeSpecSyntaxError as error:
        raise error.at(where) from None


#
# What decides about a call
#


_KEY_PARTS = {
    c.UNCHECKED: "",
    c.BY_CLASS: "type(a{0}), ",
    c.BY_ARRAY: "type(a{0}), a{0}.dtype, a{0}.shape, ",
    c.BY_ANY: "type(a{0}), getattr(a{0}, 'dtype', None), getattr(a{0}, 'shape', None), ",
}


@functools.lru_cache(maxsize=1024)
def key_function(kinds: tuple[str, ...]) -> Callable[..., Any]:
    """Return a function from arguments to what decides about them.

    >>> key_function(("c", "-"))(3, "unchecked")
    (<class 'int'>,)
    """
    names = ", ".join(f"a{i}" for i in range(len(kinds)))
    parts = "".join(_KEY_PARTS[kind].format(i) for i, kind in enumerate(kinds))
    return eval(f"lambda {names}: ({parts})")


#
# Annotations of jaxtyping
#


_log = logging.getLogger("kauldron.ktyping")


def report_jaxtyping(annotations: Mapping[str, Any], location: CodeLocation) -> None:
    """Report `jaxtyping` annotations as the configuration says."""
    if "jaxtyping" not in sys.modules:
        return
    policy = get_config(location.module_name).jaxtyping_annotations
    if policy is ReportingPolicy.IGNORE:
        return
    for name, annotation in annotations.items():
        if contains_jaxtyping(annotation) is None:
            continue
        text = (
            f"Parameter {name!r} of {location} has the jaxtyping annotation "
            f"{format_annotation(annotation)}. Use the types of kauldron.ktyping, or set "
            "kt.CONFIG.jaxtyping_annotations."
        )
        if policy is ReportingPolicy.ERROR:
            raise RuntimeError(text)
        if policy is ReportingPolicy.WARN:
            warnings.warn(text, stacklevel=2)
        else:
            _log.info("%s", text)
