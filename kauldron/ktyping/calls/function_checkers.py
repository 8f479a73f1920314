"""The checkers of a function: arguments, result, what it yields and is sent."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import inspect
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.annotation_names import Names, evaluated_annotations
from kauldron.ktyping.array_type_meta import is_array_type
from kauldron.ktyping.calls import memo as call_memo
from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.checkers.array_checker import SpecSource
from kauldron.ktyping.checkers.compiler import Compiler
from kauldron.ktyping.checkers.container_checkers import ExtraArgumentsChecker
from kauldron.ktyping.contents import contains_array_type, walk_annotation
from kauldron.ktyping.missing import MISSING
from kauldron.ktyping.shape_type import is_shape_type
from kauldron.ktyping.shapes.spec_errors import ShapeSpecSyntaxError

if TYPE_CHECKING:
    from kauldron.ktyping.calls.function_plan import FunctionPlan

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
    memoizable = c.NOT_MEMOIZABLE not in kinds and arguments
    return FunctionCheckers(
        arguments=tuple(arguments),
        result=result,
        yielded=yielded,
        sent=sent,
        argument_key=call_memo.key_function(tuple(kinds)) if memoizable else None,
        result_key=_result_key(result),
    )


def _memo_kind(checker: c.Checker, none_is_fine: bool) -> str:
    kind = checker.memo_kind
    return c.BY_ANY if none_is_fine and kind == c.BY_ARRAY else kind


def _result_key(checker: c.Checker | None) -> Any:
    if checker is None or checker.memo_kind == c.NOT_MEMOIZABLE:
        return None
    return call_memo.key_function((checker.memo_kind,))


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
    return ExtraArgumentsChecker(annotation, container, item)


def _compile_results(
    compiler: Compiler, plan: FunctionPlan
) -> tuple[c.Checker | None, c.Checker | None, c.Checker | None]:
    """The checkers of (return value, yielded values, sent values)."""
    annotation = compiler.names.evaluated(plan.return_annotation)
    if not plan.is_generator:
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
    """Sloppy annotations of what is yielded are common, so only arrays are checked."""
    annotation = compiler.names.evaluated(annotation)
    return compiler.compile(annotation) if contains_array_type(annotation) else None


def validate_specs(function: Any, name: str) -> None:
    """Find bad shape specs when a function is decorated.

    Annotations that are not evaluated yet (strings) are left alone.

    Raises:
      ShapeSpecSyntaxError: Naming the function and the parameter.
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
