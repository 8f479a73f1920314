"""Generators and coroutines: checked at their borders, scopes only while they run."""

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
)
from typing import Any

import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float


@kt.typechecked
def windows(x: Float["n"], count: int) -> Iterator[Float["n"]]:
    for _ in range(count):
        yield x[: kt.dim["n"]]


# --------------------------------------------------------------------------------------
# Generators
# --------------------------------------------------------------------------------------


def test_generator_yields_what_it_yields():
    assert len(list(windows(np.ones(3), 2))) == 2


def test_arguments_are_checked_at_the_call():
    with pytest.raises(kt.KTypeCheckError, match="argument count"):
        windows(np.ones(3), "two")


def test_yielded_arrays_are_checked():
    @kt.typechecked
    def wrong(x: Float["n"]) -> Iterator[Float["n"]]:
        yield x
        yield x[1:]

    generator = wrong(np.ones(3))
    next(generator)
    with pytest.raises(
        kt.KTypeCheckError, match=r"yielded value np.f64\[2\] has shape"
    ):
        next(generator)


def test_what_one_yield_binds_holds_for_the_next():
    @kt.typechecked
    def sizes(*lengths: int) -> Iterator[Float["m"]]:
        for length in lengths:
            yield np.ones(length)

    assert len(list(sizes(2, 2))) == 2
    with pytest.raises(kt.KTypeCheckError, match="yielded value"):
        list(sizes(2, 3))


def test_sent_arrays_are_checked_and_none_is_allowed():
    @kt.typechecked
    def echo(x: Float["n"]) -> Generator[int, Float["n"], str]:
        received = yield 0
        while received is not None:
            received = yield received.size
        return "done"

    generator = echo(np.ones(3))
    next(generator)
    assert generator.send(np.ones(3)) == 3
    with pytest.raises(kt.KTypeCheckError, match="sent value"):
        generator.send(np.ones(4))


def test_result_is_checked_at_exhaustion():
    @kt.typechecked
    def f(result) -> Generator[int, None, str]:
        yield 1
        return result

    def run(result):
        generator = f(result)
        next(generator)
        with pytest.raises(StopIteration) as stop:
            next(generator)
        return stop.value.value

    assert run("ok") == "ok"
    with pytest.raises(kt.KTypeCheckError, match="return value 3"):
        list(f(3))


@pytest.mark.parametrize(
    "annotation", [Iterator[str], Iterable[str], Any, "absent", Generator]
)
def test_other_yield_annotations_stay_unchecked(annotation):
    def f():
        yield 1

    if annotation != "absent":
        f.__annotations__["return"] = annotation
    assert list(kt.typechecked(f)()) == [1]


def test_caller_uses_its_own_dims_while_a_generator_is_suspended():
    @kt.typechecked
    def caller(x: Float["n"]):
        seen = []
        for _ in windows(np.ones(7), 2):
            seen.append(kt.dim["n"])
            kt.check_type(np.ones(2), Float["n"])
        return seen

    assert caller(np.ones(2)) == [2, 2]


def test_interleaved_generators_do_not_interfere():
    @kt.typechecked
    def dims(x: Float["n"]) -> Iterator[int]:
        while True:
            yield kt.dim["n"]

    a, b = dims(np.ones(2)), dims(np.ones(3))
    assert [next(a), next(b), next(a), next(b)] == [2, 3, 2, 3]
    a.close()
    assert next(b) == 3


def test_close_and_throw_reach_the_body_with_its_scope():
    events = []

    @kt.typechecked
    def f(x: Float["n"]) -> Iterator[int]:
        try:
            while True:
                try:
                    yield kt.dim["n"]
                except KeyError:
                    events.append(("thrown", kt.dim["n"]))
        finally:
            events.append(("closed", kt.dim["n"]))

    generator = f(np.ones(4))
    assert next(generator) == 4
    assert generator.throw(KeyError()) == 4
    generator.close()
    assert events == [("thrown", 4), ("closed", 4)]
    with pytest.raises(StopIteration):
        next(generator)


def test_exceptions_of_the_body_end_the_generator():
    @kt.typechecked
    def f() -> Iterator[int]:
        yield 1
        raise ValueError("mine")

    generator = f()
    next(generator)
    with pytest.raises(ValueError, match="mine"):
        next(generator)


def test_result_is_a_real_generator():
    assert inspect.isgenerator(windows(np.ones(2), 1))


# --------------------------------------------------------------------------------------
# Coroutines
# --------------------------------------------------------------------------------------


@kt.typechecked
async def double(x: Float["n"], result=None) -> Float["n"]:
    await asyncio.sleep(0)
    assert kt.dim["n"] == x.size
    return x * 2 if result is None else result


def test_coroutine_function_stays_one_and_returns_its_result():
    assert inspect.iscoroutinefunction(double)
    assert asyncio.run(double(np.ones(2))).sum() == 4


def test_coroutine_checks_arguments_and_result():
    with pytest.raises(kt.KTypeCheckError, match="argument x"):
        asyncio.run(double("a"))
    with pytest.raises(kt.KTypeCheckError, match="return value"):
        asyncio.run(double(np.ones(2), result=np.ones(3)))


def test_interleaved_tasks_do_not_interfere():
    @kt.typechecked
    async def steps(x: Float["n"]) -> list[int]:
        seen = []
        for _ in range(3):
            await asyncio.sleep(0)
            seen.append(kt.dim["n"])
        return seen

    async def main():
        return await asyncio.gather(*(steps(np.ones(n)) for n in (2, 3, 4)))

    assert asyncio.run(main()) == [[2] * 3, [3] * 3, [4] * 3]


def test_coroutines_stepped_by_hand_leave_nothing_on_the_stack():
    @kt.typechecked
    async def f(x: Float["n"]):
        await asyncio.sleep(0)
        return kt.dim["n"]

    a, b = f(np.ones(2)), f(np.ones(3))
    a.send(None)
    b.send(None)
    with pytest.raises(kt.NoActiveScopeError):
        kt.get_current_scope(nested_ok=True)
    for coroutine, expected in ((a, 2), (b, 3)):
        with pytest.raises(StopIteration) as stop:
            coroutine.send(None)
        assert stop.value.value == expected


# --------------------------------------------------------------------------------------
# Asynchronous generators
# --------------------------------------------------------------------------------------


@kt.typechecked
async def stream(x: Float["n"], lengths) -> AsyncIterator[Float["m"]]:
    for length in lengths:
        await asyncio.sleep(0)
        assert kt.dim["n"] == x.size
        yield np.ones(length)


def test_asynchronous_generator():
    async def collect(*args):
        return [item.size async for item in stream(*args)]

    assert asyncio.run(collect(np.ones(2), [3, 3])) == [3, 3]
    with pytest.raises(kt.KTypeCheckError, match="yielded value"):
        asyncio.run(collect(np.ones(2), [3, 4]))
    with pytest.raises(kt.KTypeCheckError, match="argument x"):
        stream("a", [])


def test_asynchronous_generator_can_be_sent_to_thrown_into_and_closed():
    events = []

    @kt.typechecked
    async def echo(x: Float["n"]) -> AsyncGenerator[int, Float["n"]]:
        received = None
        try:
            while True:
                try:
                    received = yield 0 if received is None else received.size
                except KeyError:
                    events.append("thrown")
        finally:
            events.append(kt.dim["n"])

    async def main():
        generator = echo(np.ones(3))
        await anext(generator)
        assert await generator.asend(np.ones(3)) == 3
        await generator.athrow(KeyError())
        await generator.aclose()
        assert events == ["thrown", 3]
        generator = echo(np.ones(3))
        await anext(generator)
        with pytest.raises(kt.KTypeCheckError, match="sent value"):
            await generator.asend(np.ones(4))

    asyncio.run(main())
