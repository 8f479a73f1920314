"""The wrapper of a checked function, generated: same parameters, no argument binding.

One piece of code is compiled per kind of parameter list; the names are put in
afterwards, so decorating a function costs microseconds.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.calls.plan import FunctionPlan
from kauldron.ktyping.checkers.checker import check_one
from kauldron.ktyping.errors import FailedCheck, make_error
from kauldron.ktyping.scopes import STACK, CallScope

if TYPE_CHECKING:
    from kauldron.ktyping.checkers.checker import Checker


_P = inspect.Parameter

_BODIES = {
    "function": """
    def wrapper{parameters}:
        __tracebackhide__ = True
        scope = {enter}
        try:
            return _plan.accept(scope, _plan.function({call}))
        finally:
            _plan.pop(scope.token)
""",
    "generator": """
    def wrapper{parameters}:
        __tracebackhide__ = True
        scope = _plan.suspend({enter})
        return _drive(scope, _plan.function({call}))
""",
    "coroutine": """
    async def wrapper{parameters}:
        __tracebackhide__ = True
        scope = _plan.suspend({enter})
        return _plan.accept(scope, await _drive(scope, _plan.function({call})))
""",
}


def wrap_function(plan: FunctionPlan) -> Any:
    """Return the function that checks and then calls."""
    switchable = plan.rules.switchable
    parameters = _own_parameters(plan)
    is_bound = parameters is None
    layout = _GENERIC if is_bound else tuple(p.kind for p in parameters)
    code = _compiled(
        plan.execution.removeprefix("async "), layout, is_bound, switchable
    )
    names = ("args", "kwargs") if is_bound else tuple(p.name for p in parameters)
    name = getattr(plan.function, "__name__", plan.name)
    wrapper = types.FunctionType(
        _renamed(code, names, name),
        plan.globals,
        name,
        _positional_defaults(parameters or ()),
        tuple(
            types.CellType(
                {"_plan": plan, "_drive": _DRIVERS[plan.execution]}[variable]
            )
            for variable in code.co_freevars
        ),
    )
    wrapper.__kwdefaults__ = _keyword_defaults(parameters or (), switchable)
    return functools.update_wrapper(wrapper, plan.function)


def _own_parameters(plan: FunctionPlan) -> list[inspect.Parameter] | None:
    """Return the parameters, `None` if a decorator hides those that are documented."""
    documented = list(plan.signature.parameters.values())
    if plan.function is plan.innermost:
        return documented
    try:
        own = inspect.signature(plan.function, follow_wrapped=False)
    except ValueError:  # a cache written in C: takes what its function takes
        return documented
    same = [(p.name, p.kind) for p in own.parameters.values()] == [
        (p.name, p.kind) for p in documented
    ]
    return documented if same else None


_GENERIC = (_P.VAR_POSITIONAL, _P.VAR_KEYWORD)


@functools.cache
def _compiled(
    body: str, layout: tuple[Any, ...], is_bound: bool, switchable: bool
) -> types.CodeType:
    """Return the code of a wrapper whose parameters are called p0, p1, ..."""
    entries = [(parameter, f"p{i}") for i, parameter in enumerate(layout)]
    call = ", ".join(_CALL_FORMS[parameter].format(name) for parameter, name in entries)
    arguments = "".join(f"{name}, " for _, name in entries)
    enter = f"_plan.enter(({arguments}))"
    if is_bound:
        enter, arguments = "_plan.enter_bound(p0, p1)", ""
    if switchable:
        enter = f"{enter} if _typecheck else _plan.enter_unchecked(({arguments}))"
        has_extra = bool(layout) and layout[-1] is _P.VAR_KEYWORD
        entries.insert(len(entries) - has_extra, (_P.KEYWORD_ONLY, "_typecheck"))
    parameters = inspect.Signature([_P(name, kind) for kind, name in entries])
    wrapper = _BODIES[body].format(parameters=parameters, enter=enter, call=call)
    source = f"def make(_plan, _drive):{wrapper}    return wrapper\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, "<kauldron.ktyping wrapper>", "exec"), namespace)
    return namespace["make"](None, None).__code__


_CALL_FORMS = {
    _P.POSITIONAL_ONLY: "{0}",
    _P.POSITIONAL_OR_KEYWORD: "{0}",
    _P.VAR_POSITIONAL: "*{0}",
    _P.KEYWORD_ONLY: "{0}={0}",
    _P.VAR_KEYWORD: "**{0}",
}


def _renamed(code: types.CodeType, names: tuple[str, ...], name: str) -> types.CodeType:
    """Put the real names in. Locals of the wrapper get names that no caller can use."""
    real = {f"p{i}": parameter for i, parameter in enumerate(names)}
    real["scope"] = ".scope"

    def rename(constant: Any) -> Any:  # the names of keyword arguments are constants
        if isinstance(constant, tuple):
            return tuple(map(rename, constant))
        return real.get(constant, constant) if isinstance(constant, str) else constant

    return code.replace(
        co_varnames=tuple(map(rename, code.co_varnames)),
        co_consts=tuple(map(rename, code.co_consts)),
        co_name=name,
        co_qualname=name,
    )


def _positional_defaults(parameters: Any) -> tuple[Any, ...] | None:
    kinds = (_P.POSITIONAL_ONLY, _P.POSITIONAL_OR_KEYWORD)
    defaults = [p.default for p in parameters if p.kind in kinds]
    return tuple(d for d in defaults if d is not _P.empty) or None


def _keyword_defaults(parameters: Any, switchable: bool) -> dict[str, Any] | None:
    defaults = {
        p.name: p.default
        for p in parameters
        if p.kind is _P.KEYWORD_ONLY and p.default is not _P.empty
    }
    if switchable:
        defaults["_typecheck"] = True
    return defaults or None


#
# Generators and coroutines
#


def drive_generator(
    scope: CallScope, generator: Generator[Any, Any, Any]
) -> Generator[Any, Any, Any]:
    """Run a generator with its yields, sends and result checked."""
    __tracebackhide__ = True
    yielded, sent = _checkers(scope)
    result = yield from _resume(scope, generator, yielded, sent)
    return scope.plan.accept(scope, result)


async def drive_async_generator(
    scope: CallScope, generator: AsyncGenerator[Any, Any]
) -> AsyncGenerator[Any, Any]:
    """Run an asynchronous generator with its yields and sends checked."""
    __tracebackhide__ = True
    yielded, sent = _checkers(scope)
    step = generator.asend(None)
    while True:
        try:
            item = await resume_awaitable(scope, step)
        except StopAsyncIteration:
            return
        _check(scope, yielded, "yielded value", item)
        try:
            received = yield item
        except GeneratorExit:
            await resume_awaitable(scope, generator.aclose())
            raise
        except BaseException as error:
            step = generator.athrow(error)
        else:
            _check_sent(scope, sent, received)
            step = generator.asend(received)


@types.coroutine
def resume_awaitable(scope: CallScope, awaitable: Any) -> Generator[Any, Any, Any]:
    """Await something with a scope active whenever it runs."""
    __tracebackhide__ = True
    return (yield from _resume(scope, awaitable.__await__(), None, None))


def _resume(
    scope: CallScope, generator: Any, yielded: Checker | None, sent: Checker | None
) -> Generator[Any, Any, Any]:
    """`yield from generator` with the scope pushed around each step."""
    __tracebackhide__ = True
    step, payload = generator.send, None
    while True:
        scope.token = STACK.set(scope)
        try:
            item = step(payload)
        except StopIteration as stop:
            return stop.value
        finally:
            STACK.reset(scope.token)
        _check(scope, yielded, "yielded value", item)
        try:
            payload = yield item
        except GeneratorExit:
            return _close(scope, generator)
        except BaseException as error:
            step, payload = generator.throw, error
        else:
            _check_sent(scope, sent, payload)
            step = generator.send


def _close(scope: CallScope, generator: Any) -> Any:
    """Close the inner generator; what it returns is what `close()` returns."""
    scope.token = STACK.set(scope)
    try:
        return generator.close()
    finally:
        STACK.reset(scope.token)


def _checkers(scope: CallScope) -> tuple[Checker | None, Checker | None]:
    if not scope.is_checked:
        return None, None
    compiled = scope.plan.ensure_compiled()
    return compiled.yielded, compiled.sent


def _check_sent(scope: CallScope, checker: Checker | None, value: Any) -> None:
    if value is not None:
        _check(scope, checker, "sent value", value)


def _check(scope: CallScope, checker: Checker | None, what: str, value: Any) -> None:
    """Check a value that crosses the border; what it binds holds from then on."""
    __tracebackhide__ = True
    if checker is None:
        return
    state = scope.state
    after = check_one(checker, value, state, scope)
    if after is None:
        raise make_error(FailedCheck(what, "", value, checker, state, scope))
    scope.state = after


_DRIVERS = {
    "function": None,
    "generator": drive_generator,
    "async generator": drive_async_generator,
    "coroutine": resume_awaitable,
}
