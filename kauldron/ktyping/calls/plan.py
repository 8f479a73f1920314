"""What a checked function does on each call; everything is prepared at the first.

The generated wrapper (`wrapper.py`) calls `enter` with the arguments, then the
function, then `accept` with its result. Calls that were fine are remembered: the same
classes, dtypes and shapes are fine again.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Iterable
from typing import Any

from kauldron.ktyping.calls.signatures import (
    FunctionCheckers,
    compile_function,
    report_jaxtyping,
)
from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.checkers.annotations import (
    closure_variables,
    names_of_function,
    read_annotations,
    read_signature,
)
from kauldron.ktyping.config import CONFIG, MISSING, VERSION, Rules, get_config
from kauldron.ktyping.dims import enclosing_scope
from kauldron.ktyping.errors import FailedCheck, make_error
from kauldron.ktyping.scopes import (
    STACK,
    CallScope,
    CodeLocation,
    ShapeScope,
    TransparentCallScope,
    UncheckedCallScope,
)
from kauldron.ktyping.shapes.sizes import EMPTY_STATE, ShapeError, State


class FunctionPlan:
    """A function (which may be decorated itself) and how its calls are checked."""

    def __init__(self, function: Any, kind: str, new_scope: bool, rules: Rules):
        self.function = function
        self.kind = kind
        self.new_scope = new_scope
        self.rules = rules
        self.pop = STACK.reset
        self.version = 0  # of the configuration that the fields below belong to
        self.config = CONFIG
        self.compiled: FunctionCheckers | None = None
        self._argument_key: Any = None
        self._result_key: Any = None
        self._result_checker: c.Checker | None = None
        self._memo: dict[Any, MemoEntry] = {}

    def __reduce__(self) -> Any:
        """Leave the checkers out: they are compiled again where the plan is loaded."""
        return FunctionPlan, (self.function, self.kind, self.new_scope, self.rules)

    # ----------------------------------------------------------------------------------
    # Per call
    # ----------------------------------------------------------------------------------

    def enter(self, args: tuple[Any, ...]) -> CallScope:
        """Check the arguments and open the scope of the call."""
        __tracebackhide__ = True
        if self.version != VERSION.number:
            self._refresh()
        if self._argument_key is not None:
            try:
                entry = self._memo[self._argument_key(*args)]
            except Exception:  # new, or without dtype and shape
                entry = None
            # Checked out here, so that an error does not show the lookup's as its context.
            if entry is None:
                scope = self._enter_slowly(args)
            else:
                scope = CallScope(self, args, entry.state, entry)
        elif not self.config.typechecking_enabled:
            scope = UncheckedCallScope(self, args)
        else:
            scope = self._enter_slowly(args)
        scope.token = STACK.set(scope)
        return scope

    def enter_bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallScope:
        """`enter` for a function whose own parameters are not those it documents."""
        __tracebackhide__ = True
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError:  # raised again, in its own words, by the function itself
            return self.enter_unchecked(())
        bound.apply_defaults()
        return self.enter(tuple(bound.arguments.values()))

    def suspend(self, scope: CallScope) -> CallScope:
        """Take a scope off the stack again, until the body runs."""
        self.pop(scope.token)
        return scope

    def enter_unchecked(self, args: tuple[Any, ...]) -> CallScope:
        """Open a scope in which dims are inferred only when they are asked for."""
        scope = UncheckedCallScope(self, args)
        scope.token = STACK.set(scope)
        return scope

    def accept(self, scope: CallScope, result: Any) -> Any:
        """Check the result and hand it back."""
        __tracebackhide__ = True
        if self._result_checker is None or not scope.is_checked:
            return result
        entry = scope.memo_entry
        if entry is not None and scope.state is entry.state:
            try:
                if self._result_key(result) in entry.results:
                    return result
            except Exception:  # no memo for this annotation, or not an array
                pass
        self._check_result(scope, result, entry)
        return result

    # ----------------------------------------------------------------------------------
    # When nothing is remembered
    # ----------------------------------------------------------------------------------

    def _enter_slowly(self, args: tuple[Any, ...]) -> CallScope:
        __tracebackhide__ = True
        if self.new_scope:
            scope = CallScope(self, args, EMPTY_STATE, None)
        else:
            enclosing = enclosing_scope(
                f"{self.name}(), @typechecked(new_scope=False),"
            )
            scope = TransparentCallScope(self, args, enclosing)
        checked = self.checked_arguments(args)
        parts = [(checker, value) for _, checker, value in checked]
        before = scope.state
        try:
            state, failed = c.check_all(parts, before, scope)
        except ShapeError as error:
            raise self._named_shape_error(error, checked, scope) from error.__cause__
        if failed is not None:
            name, checker, value = checked[failed]
            if isinstance(checker, c.NeverChecker):
                raise self._never("be called but it was", name, value, checker, scope)
            raise make_error(
                FailedCheck("argument", name, value, checker, state, scope)
            )
        scope.state = state
        key_of = self._argument_key
        if key_of and is_memoizable(value for _, _, value in checked):
            scope.memo_entry = MemoEntry(state)
            remember(self._memo, key_of(*args), scope.memo_entry)
        return scope

    def _check_result(
        self, scope: CallScope, result: Any, entry: MemoEntry | None
    ) -> None:
        __tracebackhide__ = True
        checker = self._result_checker
        assert checker is not None
        scope.return_value = result
        state = scope.state
        try:
            after = c.check_one(checker, result, state, scope)
        except ShapeError as error:
            text = f"return value of {self.name}(): {error}"
            raise ShapeError(text) from error.__cause__
        if after is None:
            if isinstance(checker, c.NeverChecker):
                raise self._never("return but it did", "", result, checker, scope)
            raise make_error(
                FailedCheck("return value", "", result, checker, state, scope)
            )
        if (
            entry is not None
            and state is entry.state
            and self._result_key is not None
            and is_memoizable((result,))
        ):
            remember(entry.results, self._result_key(result), True)
        scope.state = after

    def _never(
        self, what: str, name: str, value: Any, checker: c.Checker, scope: CallScope
    ) -> Exception:
        reason = f"{self.name}() was declared never to {what}"
        state = scope.state
        return make_error(
            FailedCheck("call", name, value, checker, state, scope, reason)
        )

    def _named_shape_error(
        self,
        error: ShapeError,
        checked: list[tuple[str, c.Checker, Any]],
        scope: ShapeScope,
    ) -> ShapeError:
        """Return the same error, saying which argument it is about."""
        for name, checker, value in checked:
            try:
                checker.check(value, EMPTY_STATE, scope)
            except ShapeError:
                return ShapeError(f"argument {name!r} of {self.name}(): {error}")
        return error

    # ----------------------------------------------------------------------------------
    # Prepared once
    # ----------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Follow the configuration; compile if that has not been done."""
        __tracebackhide__ = True
        version = VERSION.number
        config = self.config = get_config(self.location.module_name)
        all_items = config.collection_check == "all"
        if all_items != self.rules.all_items:
            self.rules = dataclasses.replace(self.rules, all_items=all_items)
            self.compiled = None
        self._argument_key = None
        if config.typechecking_enabled:
            compiled = self.ensure_compiled()
            self._result_checker = compiled.result
            self._memo = {}
            if self.new_scope:
                self._argument_key = compiled.argument_key
                self._result_key = compiled.result_key
        self.version = version

    def ensure_compiled(self) -> FunctionCheckers:
        """Return the checkers of arguments and results."""
        if self.compiled is None:
            report_jaxtyping(self.annotations_with_result, self.location)
            names = names_of_function(self.innermost, f"{self.name}()")
            self.compiled = compile_function(self, names)
        return self.compiled

    def checked_arguments(
        self, args: tuple[Any, ...]
    ) -> list[tuple[str, c.Checker, Any]]:
        """Name, checker and value of each annotated argument.

        What defaults to `None` may be `None`, whatever its annotation says.
        """
        compiled = self.ensure_compiled()
        if len(args) != len(self.names):  # could not be bound
            return []
        return [
            (name, checker, args[index])
            for index, name, checker, none_is_fine in compiled.arguments
            if not (none_is_fine and args[index] is None)
        ]

    @functools.cached_property
    def innermost(self) -> types.FunctionType:
        """The function whose body runs in the end."""
        return inspect.unwrap(self.function)

    @functools.cached_property
    def code(self) -> types.CodeType:
        return self.innermost.__code__

    @property
    def globals(self) -> dict[str, Any]:
        return self.innermost.__globals__

    @property
    def name(self) -> str:
        return self.innermost.__name__

    @functools.cached_property
    def execution(self) -> str:
        return execution_of(self.function)

    @property
    def result_is_replaced(self) -> bool:
        """Whether a decorator made something else of a generator or coroutine."""
        is_inner = execution_of(self.innermost) == "function"
        return self.execution == "function" and not is_inner

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return read_signature(self.innermost)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.signature.parameters)

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults of those parameters that have one."""
        empty: dict[Any, Any] = {
            inspect.Parameter.VAR_POSITIONAL: (),
            inspect.Parameter.VAR_KEYWORD: {},
        }
        found = {
            name: empty.get(parameter.kind, parameter.default)
            for name, parameter in self.signature.parameters.items()
        }
        missing = inspect.Parameter.empty
        return {name: value for name, value in found.items() if value is not missing}

    @functools.cached_property
    def annotations_with_result(self) -> dict[str, Any]:
        return read_annotations(self.innermost)

    @property
    def annotations(self) -> dict[str, Any]:
        """The annotations of the parameters, as written."""
        return {k: v for k, v in self.annotations_with_result.items() if k != "return"}

    @property
    def return_annotation(self) -> Any:
        return self.annotations_with_result.get("return", MISSING)

    @functools.cached_property
    def location(self) -> CodeLocation:
        tail = self.code.co_qualname.rsplit("<locals>.", 1)[-1]
        return CodeLocation(
            description=f"{self.kind} {self.name!r}",
            file=self.code.co_filename,
            line=self.code.co_firstlineno,
            module_name=getattr(self.innermost, "__module__", None) or "",
            qualified_name=tail if "." in tail else "",
        )

    def closure_variables(self) -> dict[str, Any]:
        return closure_variables(self.innermost)


def execution_of(function: Any) -> str:
    """Return how a call runs: `function`, `coroutine`, `(async )generator`."""
    if inspect.isgeneratorfunction(function):
        return "generator"
    if inspect.isasyncgenfunction(function):
        return "async generator"
    return "coroutine" if inspect.iscoroutinefunction(function) else "function"


#
# The memo of calls that were fine
#


_MAX_ENTRIES = 128


class MemoEntry:
    """The state after checking certain arguments, and results that fit there."""

    __slots__ = ("results", "state")

    def __init__(self, state: State):
        self.state = state
        self.results: dict[Any, bool] = {}


def remember(memo: dict[Any, Any], key: Any, value: Any) -> None:
    """Store a value; a full memo is emptied first."""
    if len(memo) >= _MAX_ENTRIES:
        memo.clear()
    memo[key] = value


def is_memoizable(values: Iterable[Any]) -> bool:
    """Return whether class, dtype and shape decide about all values.

    They do not for symbolic sizes, nor for a proxy that pretends to be of another class.
    """
    try:
        return all(
            value.__class__ is type(value) and _has_plain_shape(value)
            for value in values
        )
    except Exception:  # whatever the value's own code does
        return False


def _has_plain_shape(value: Any) -> bool:
    shape = getattr(value, "shape", ())
    return isinstance(shape, tuple) and all(type(size) is int for size in shape)
