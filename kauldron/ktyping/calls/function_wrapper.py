"""Generate the wrapper of a checked function: same parameters, no argument binding.

One piece of code is compiled per kind of parameter list; the names are put in
afterwards, so decorating a function costs microseconds.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

from kauldron.ktyping.calls.function_plan import FunctionPlan
from kauldron.ktyping.calls.resumption import (
    Resumption,
    drive_async_generator,
    drive_generator,
)

_P = inspect.Parameter

_BODIES = {
    "function": """
    def wrapper({parameters}):
        __tracebackhide__ = True
        scope = {enter}
        try:
            return _plan.accept(scope, _plan.function({call}))
        finally:
            _plan.pop(scope.token)
""",
    "generator": """
    def wrapper({parameters}):
        __tracebackhide__ = True
        scope = _plan.suspend({enter})
        return _drive(scope, _plan.function({call}))
""",
    "coroutine": """
    async def wrapper({parameters}):
        __tracebackhide__ = True
        scope = _plan.suspend({enter})
        return _plan.accept(scope, await _drive(scope, _plan.function({call})))
""",
}

_DRIVERS = {
    "function": None,
    "generator": drive_generator,
    "async generator": drive_async_generator,
    "coroutine": Resumption,
}


def wrap_function(plan: FunctionPlan, *, switchable: bool = False) -> Any:
    """The function that checks and then calls.

    Args:
      plan: What to call and how to check.
      switchable: Whether callers may pass `_typecheck=False` to skip the checks.
    """
    parameters = _own_parameters(plan)
    kind = _kind(plan.function)
    is_bound = parameters is None
    layout = _GENERIC if is_bound else tuple(p.kind for p in parameters)
    body = "generator" if kind == "async generator" else kind
    code = _compiled(body, layout, is_bound, switchable)
    names = ("args", "kwargs") if is_bound else tuple(p.name for p in parameters)
    name = getattr(plan.function, "__name__", plan.name)
    wrapper = types.FunctionType(
        _renamed(code, names, name),
        plan.globals,
        name,
        _positional_defaults(parameters or ()),
        tuple(
            types.CellType({"_plan": plan, "_drive": _DRIVERS[kind]}[variable])
            for variable in code.co_freevars
        ),
    )
    wrapper.__kwdefaults__ = _keyword_defaults(parameters or (), switchable)
    return functools.update_wrapper(wrapper, plan.function)


def _kind(function: Any) -> str:
    if inspect.isgeneratorfunction(function):
        return "generator"
    if inspect.isasyncgenfunction(function):
        return "async generator"
    return "coroutine" if inspect.iscoroutinefunction(function) else "function"


def _own_parameters(plan: FunctionPlan) -> list[inspect.Parameter] | None:
    """The parameters, `None` if a decorator hides those that are documented."""
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
    kind: str, layout: tuple[Any, ...], is_bound: bool, switchable: bool
) -> types.CodeType:
    """The code of a wrapper whose parameters are called p0, p1, ..."""
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
    body = _BODIES[kind].format(
        parameters=_parameter_text(entries), enter=enter, call=call
    )
    source = f"def make(_plan, _drive):{body}    return wrapper\n"
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


def _parameter_text(entries: list[tuple[Any, str]]) -> str:
    """A parameter list, with `/` and `*` where the kinds demand them."""
    parts: list[str] = []
    kinds = [kind for kind, _ in entries]
    for i, (kind, name) in enumerate(entries):
        if kind is _P.KEYWORD_ONLY and not {_P.VAR_POSITIONAL, kind} & set(kinds[:i]):
            parts.append("*")
        stars = {_P.VAR_POSITIONAL: "*", _P.VAR_KEYWORD: "**"}.get(kind, "")
        parts.append(stars + name)
        if kind is _P.POSITIONAL_ONLY and kind not in kinds[i + 1 :]:
            parts.append("/")
    return ", ".join(parts)


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
