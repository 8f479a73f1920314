"""Run generators and coroutines so that their scope is active only while they run.

A suspended body must leave nothing on the stack of whoever runs in the meantime, so the
scope is pushed before each resumption and popped after it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.checkers.checker import check_one
from kauldron.ktyping.error_report import FailedCheck
from kauldron.ktyping.errors import make_error
from kauldron.ktyping.scopes.call_scope import CallScope
from kauldron.ktyping.scopes.stack import STACK

if TYPE_CHECKING:
    from kauldron.ktyping.checkers.checker import Checker


def drive_generator(
    scope: CallScope, generator: Generator[Any, Any, Any]
) -> Generator[Any, Any, Any]:
    """The same generator, with its yields, sends and result checked."""
    __tracebackhide__ = True
    yielded, sent = _checkers(scope)
    result = yield from _resume(scope, generator, yielded, sent)
    return scope.plan.accept(scope, result)


async def drive_async_generator(
    scope: CallScope, generator: AsyncGenerator[Any, Any]
) -> AsyncGenerator[Any, Any]:
    """The same asynchronous generator, with its yields and sends checked."""
    __tracebackhide__ = True
    yielded, sent = _checkers(scope)
    step = generator.asend(None)
    while True:
        try:
            item = await Resumption(scope, step)
        except StopAsyncIteration:
            return
        _check(scope, yielded, "yielded value", item)
        try:
            received = yield item
        except GeneratorExit:
            await Resumption(scope, generator.aclose())
            raise
        except BaseException as error:
            step = generator.athrow(error)
        else:
            _check_sent(scope, sent, received)
            step = generator.asend(received)


class Resumption:
    """Awaits something with a scope active whenever it runs."""

    __slots__ = ("_awaitable", "_scope")

    def __init__(self, scope: CallScope, awaitable: Any):
        self._scope = scope
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, Any]:
        return _resume(self._scope, self._awaitable.__await__(), None, None)


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
