"""`@typechecked` on functions and methods."""

import functools
import inspect
import threading
import typing

import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float, Int


@kt.typechecked
def scale(x: Float["*b n"], factor: float = 2.0, *, shift: Float["n"] | None = None):
    """Scale and shift."""
    return x * factor if shift is None else x * factor + shift


# --------------------------------------------------------------------------------------
# The wrapper looks like the function
# --------------------------------------------------------------------------------------


def _plain(a, b: int = 1, /, c=2, *args: int, d, e=5, **kw: str) -> int:
    """Doc."""
    return 3


def test_wrapper_keeps_name_doc_dict_and_signature():
    _plain.marker = "kept"
    wrapped = kt.typechecked(_plain)
    assert wrapped.__name__ == "_plain" and wrapped.__doc__ == "Doc."
    assert wrapped.__qualname__ == _plain.__qualname__
    assert wrapped.__module__ == __name__
    assert wrapped.marker == "kept"
    assert wrapped.__wrapped__ is _plain
    assert inspect.signature(wrapped) == inspect.signature(_plain)
    assert inspect.getfullargspec(wrapped).args == ["a", "b", "c"]


SIGNATURES = [
    lambda: None,
    lambda a: a,
    lambda a, b=1: (a, b),
    lambda a, /, b: (a, b),
    lambda a, b=2, /, c=3: (a, b, c),
    lambda *args: args,
    lambda **kw: kw,
    lambda a, *args, **kw: (a, args, kw),
    lambda a, *, k: (a, k),
    lambda a, *, k=1, j=2: (a, k, j),
    lambda a, *args, k=1, **kw: (a, args, k, kw),
    lambda *, scope, _plan=3: (scope, _plan),
    lambda scope, _plan, self, wrapper: (scope, _plan, self, wrapper),
    lambda p0, p1=1, *p2, p3=3, **p4: (p0, p1, p2, p3, p4),
]
CALLS = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((1, 2, 3, 4), {}),
    ((1,), {"b": 5}),
    ((1,), {"k": 5}),
    ((1, 2), {"k": 5, "z": 6}),
    ((), {"scope": 1}),
    ((), {"a": 1, "b": 2}),
    ((1,), {"p3": 7, "x": 8}),
]


@pytest.mark.parametrize(
    "function", SIGNATURES, ids=lambda f: str(inspect.signature(f))
)
@pytest.mark.parametrize("args, kwargs", CALLS, ids=str)
def test_calls_behave_like_the_plain_function(function, args, kwargs):
    def outcome(callable_):
        try:
            return callable_(*args, **kwargs)
        except TypeError as error:
            return str(error)

    assert outcome(kt.typechecked(function)) == outcome(function)


def test_it_adds_no_keyword_of_its_own():
    with pytest.raises(TypeError, match="unexpected keyword argument '_typecheck'"):
        scale(np.ones(2), _typecheck=False)


# --------------------------------------------------------------------------------------
# Arguments and results
# --------------------------------------------------------------------------------------


def test_correct_call_passes_through():
    assert scale(np.ones((2, 3)), shift=np.ones(3)).sum() == 18


def test_dims_are_shared_by_arguments():
    with pytest.raises(kt.KTypeCheckError, match="argument shift"):
        scale(np.ones((2, 3)), shift=np.ones(4))


def test_dims_are_shared_with_the_result():
    @kt.typechecked
    def transpose(x: Float["a b"]) -> Float["b a"]:
        return x

    assert transpose(np.ones((2, 2))).shape == (2, 2)
    with pytest.raises(kt.KTypeCheckError, match=r"return value np.f64"):
        transpose(np.ones((2, 3)))


def test_same_call_is_judged_the_same_again():
    for _ in range(3):
        assert scale(np.ones((2, 3))).shape == (2, 3)
        with pytest.raises(kt.KTypeCheckError):
            scale(np.ones((2, 3), int))


def test_dims_bound_in_the_body_hold_for_the_result():
    @kt.typechecked
    def f(x: Float["n"], m: int) -> Float["m"]:
        kt.dim["m"] = m
        return x

    for _ in range(2):  # the second call finds the arguments remembered
        assert f(np.ones(3), 3).shape == (3,)
        with pytest.raises(kt.KTypeCheckError, match="return value"):
            f(np.ones(3), 4)


def test_proxies_are_judged_by_what_they_stand_for():
    class Proxy:
        def __init__(self, target):
            self._target = target

        @property
        def __class__(self):
            return type(self._target)

    @kt.typechecked
    def f(x: int):
        return True

    for _ in range(2):
        assert f(Proxy(3))
        with pytest.raises(kt.KTypeCheckError):
            f(Proxy("a"))


def test_many_different_shapes_are_all_checked():
    for n in range(300):
        assert scale(np.ones((1, n)), shift=np.ones(n)).shape == (1, n)
        with pytest.raises(kt.KTypeCheckError):
            scale(np.ones((1, n)), shift=np.ones(n + 1))


def test_defaults_are_checked():
    @kt.typechecked
    def f(x: int = "not an int"):
        return x

    with pytest.raises(kt.KTypeCheckError, match="argument x"):
        f()


def test_default_none_is_accepted_whatever_the_annotation():
    @kt.typechecked
    def f(x: Float["n"] = None, y: int = None):  # noqa: RUF013
        return x, y

    assert f() == (None, None)
    assert f(None, None) == (None, None)
    assert f(np.ones(2))[1] is None
    with pytest.raises(kt.KTypeCheckError):
        f(3)


def test_extra_positional_arguments_are_checked_one_by_one():
    @kt.typechecked
    def f(*args: Float["n"], **kw: int):
        return len(args) + len(kw)

    assert f(np.ones(2), np.ones(2), a=1, b=2) == 4
    assert f() == 0
    with pytest.raises(
        kt.KTypeCheckError, match=r"argument args\[1\] = np.f64\[3\] has"
    ):
        f(np.ones(2), np.ones(3))
    with pytest.raises(kt.KTypeCheckError, match=r"argument kw\['b'\] = 'x' is not"):
        f(a=1, b="x")


def test_unpacked_extra_arguments():
    class Options(typing.TypedDict, total=False):
        size: int

    @kt.typechecked
    def f(*args: *tuple[int, str], **kw: typing.Unpack[Options]):
        return args

    assert f(1, "a", size=3) == (1, "a")
    with pytest.raises(kt.KTypeCheckError, match="wrong number of elements"):
        f(1)
    with pytest.raises(kt.KTypeCheckError, match="unexpected extra key"):
        f(1, "a", color=3)


def test_argument_order_does_not_matter_for_products():
    @kt.typechecked
    def f(flat: Float["h*w c"], image: Float["h w c"]):
        return kt.shape("h w")

    assert f(np.ones((6, 1)), np.ones((2, 3, 1))) == (2, 3)
    with pytest.raises(kt.KTypeCheckError, match="argument flat"):
        f(np.ones((5, 1)), np.ones((2, 3, 1)))


def test_rounded_division_waits_for_the_exact_size():
    @kt.typechecked
    def merge(low: Float["b h//2 w//2"], skip: Float["b h w"] | None = None):
        return kt.shape("h w")

    low = np.ones((1, 2, 3))
    assert merge(low, np.ones((1, 5, 6))) == (5, 6)
    assert merge(low) == (4, 6)
    with pytest.raises(kt.KTypeCheckError, match="argument low"):
        merge(low, np.ones((1, 8, 6)))


def test_undetermined_product_is_explained():
    @kt.typechecked
    def f(flat: Float["h*w"]): ...

    with pytest.raises(kt.KTypeCheckError, match="cannot determine 'h\\*w': 'h', 'w'"):
        f(np.ones(6))


def test_retry_works_inside_containers():
    @kt.typechecked
    def f(
        x: tuple[Float["h*w"], Float["h w"]],
        tree: kt.PyTree[Float["m*k"] | Float["m k"]],
    ):
        return kt.shape("h w m k")

    tree = {"a": np.ones(6), "b": np.ones((3, 2))}
    assert f((np.ones(6), np.ones((2, 3))), tree) == (2, 3, 3, 2)


def test_unions_are_decided_by_later_arguments():
    @kt.typechecked
    def f(x: Float["a 3"] | Float["3 b"], y: Float["b"] | None, z: Float["a"] | None):
        return "a" in kt.dim, "b" in kt.dim

    square = np.ones((3, 3))
    assert f(square, np.ones(3), None) == (False, True)
    assert f(square, None, np.ones(3)) == (True, False)
    assert f(square, None, None) == (False, False)


CONTAINERS = [
    (tuple[Float["a 3"], int] | tuple[Float["3 b"], int], lambda x: (x, 1)),
    (list[Float["a 3"]] | list[Float["3 b"]], lambda x: [x]),
    (dict[str, Float["a 3"]] | dict[str, Float["3 b"]], lambda x: {"k": x}),
    (kt.PyTree[Float["a 3"]] | kt.PyTree[Float["3 b"]], lambda x: {"k": [x]}),
]


@pytest.mark.parametrize(
    "annotation, wrap",
    CONTAINERS,
    ids=[str(annotation) for annotation, _ in CONTAINERS],
)
def test_unions_of_containers_are_decided_by_later_arguments(annotation, wrap):
    @kt.typechecked
    def f(x: annotation, y: Float["b"]):
        return kt.dim["b"]

    assert f(wrap(np.ones((3, 4))), np.ones(4)) == 4
    assert f(wrap(np.ones((3, 3))), np.ones(3)) == 3
    with pytest.raises(kt.KTypeCheckError):
        f(wrap(np.ones((3, 4))), np.ones(5))


def test_unresolved_split_is_ambiguous_for_dim():
    @kt.typechecked
    def f(x: Float["*p *q"], y: Float["*p"] | None = None):
        return kt.dim["*p"]

    assert f(np.ones((4, 5)), np.ones(4)) == (4,)
    with pytest.raises(kt.AmbiguousDimensionError, match=r"'p'.*\(\) \| 4 \| \(4, 5\)"):
        f(np.ones((4, 5)))


def test_changing_annotations_later_has_no_effect():
    @kt.typechecked
    def f(x: int):
        return x

    f(1)
    f.__annotations__["x"] = str
    assert f(2) == 2


# --------------------------------------------------------------------------------------
# Methods and other decorators
# --------------------------------------------------------------------------------------


class Model:
    size = 3

    @kt.typechecked
    def method(self, x: Float["n {self.size}"]) -> Float["n"]:
        return x.sum(-1)

    @kt.typechecked
    @classmethod
    def from_class(cls, x: Int["n"]) -> int:
        return kt.dim["n"]

    @kt.typechecked
    @staticmethod
    def static(x: Int["n"]) -> int:
        return kt.dim["n"]

    @classmethod
    @kt.typechecked
    def inner_class(cls, x: Int["n"]) -> int:
        return kt.dim["n"]

    @kt.typechecked
    @property
    def value(self) -> int:
        return self._value

    @value.setter
    def value(self, new: int):
        self._value = new


def test_methods_of_every_kind():
    assert Model().method(np.ones((2, 3))).shape == (2,)
    assert Model.from_class(np.ones(2, int)) == 2
    assert Model.static(np.ones(2, int)) == 2
    assert Model.inner_class(np.ones(2, int)) == 2
    for function in (Model.from_class, Model.static, Model.inner_class):
        with pytest.raises(kt.KTypeCheckError):
            function(np.ones(2))


def test_bound_method_can_be_decorated():
    class Plain:
        def method(self, x: Float["n"]):
            return x

    checked = kt.typechecked(Plain().method)
    assert checked(np.ones(2)).shape == (2,)
    with pytest.raises(kt.KTypeCheckError):
        checked(3)


def test_property_getter_setter_and_deleter_are_checked():
    class Holder:
        def _get(self) -> int:
            return self._x

        def _set(self, x: int) -> None:
            self._x = x

        def _delete(self) -> None:
            return "wrong"

        x = kt.typechecked(property(_get, _set, _delete, "Docs."))

    holder = Holder()
    holder.x = 3
    assert holder.x == 3
    assert Holder.x.__doc__ == "Docs."
    with pytest.raises(kt.KTypeCheckError):
        holder.x = "a"
    holder._x = "a"
    with pytest.raises(kt.KTypeCheckError, match="property '_get'"):
        holder.x
    with pytest.raises(kt.KTypeCheckError):
        del holder.x


def test_super_calls_have_scopes_of_their_own():
    class Base:
        @kt.typechecked
        def f(self, x: Float["n"]):
            return kt.dim["n"]

    class Child(Base):
        @kt.typechecked
        def f(self, x: Float["n"]):
            return super().f(np.ones(5)), kt.dim["n"]

    assert Child().f(np.ones(2)) == (5, 2)


def test_recursion_has_scopes_of_its_own():
    @kt.typechecked
    def f(x: Float["n"]):
        inner = f(x[1:]) if x.size > 1 else []
        return [kt.dim["n"], *inner]

    assert f(np.ones(3)) == [3, 2, 1]


def _transparent(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


def test_other_decorators_may_sit_between():
    @kt.typechecked
    @_transparent
    def f(x: Float["n"], k: int = 1) -> Float["n"]:
        return x[: kt.dim["n"]] * k

    assert f(np.ones(2), k=2).sum() == 4
    with pytest.raises(kt.KTypeCheckError):
        f(np.ones((2, 2)))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        f()


def test_other_decorators_may_sit_outside():
    @_transparent
    @kt.typechecked
    def f(x: Float["n"]):
        return kt.dim["n"]

    assert f(np.ones(2)) == 2


def test_cached_functions():
    calls = []

    @kt.typechecked
    @functools.cache
    def f(x: int) -> int:
        calls.append(x)
        return x

    assert f(1) == f(1) == 1
    assert calls == [1]
    with pytest.raises(kt.KTypeCheckError):
        f("a")


def test_context_manager_function_keeps_its_annotation():
    import contextlib
    from collections.abc import Iterator

    @kt.typechecked
    @contextlib.contextmanager
    def opened(x: int) -> Iterator[int]:
        yield x

    with opened(3) as value:
        assert value == 3
    with pytest.raises(kt.KTypeCheckError):
        opened("a")


def test_refused_objects_get_advice():
    import jax

    class Plain: ...

    with pytest.raises(TypeError, match="plain class: decorate its methods"):
        kt.typechecked(Plain)
    with pytest.raises(TypeError, match=r"Put @typechecked under @jax.jit"):
        kt.typechecked(jax.jit(lambda x: x))
    for other in (len, functools.partial(int, "3"), 3):
        with pytest.raises(TypeError, match="it takes functions, methods"):
            kt.typechecked(other)


# --------------------------------------------------------------------------------------
# Exceptions, threads
# --------------------------------------------------------------------------------------


def test_exceptions_of_the_body_pass_unchanged_and_close_the_scope():
    error = KeyError("mine")

    @kt.typechecked
    def f(x: int):
        raise error

    with pytest.raises(KeyError) as caught:
        f(1)
    assert caught.value is error
    with pytest.raises(kt.NoActiveScopeError):
        kt.get_current_scope(nested_ok=True)


def test_nested_failure_is_not_rewrapped():
    @kt.typechecked
    def inner(x: int): ...

    @kt.typechecked
    def outer(x: int):
        inner("a")

    with pytest.raises(kt.KTypeCheckError, match="function 'inner'"):
        outer(1)


def test_wrapper_frames_are_hidden_from_tracebacks():
    with pytest.raises(kt.KTypeCheckError) as caught:
        scale("a")
    hidden = [
        entry.frame.f_locals.get("__tracebackhide__", False)
        for entry in caught.traceback[1:]
    ]
    assert hidden and all(hidden)


def test_threads_have_scopes_of_their_own():
    seen = {}

    @kt.typechecked
    def f(x: Float["n"], barrier, name):
        barrier.wait(timeout=10)
        seen[name] = kt.dim["n"]

    def orphan():
        try:
            kt.get_current_scope(nested_ok=True)
        except kt.NoActiveScopeError:
            seen["orphan"] = True

    barrier = threading.Barrier(2)
    with kt.typechecked():
        threads = [
            threading.Thread(target=f, args=(np.ones(2), barrier, "two")),
            threading.Thread(target=f, args=(np.ones(3), barrier, "three")),
            threading.Thread(target=orphan),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=10)
    assert seen == {"two": 2, "three": 3, "orphan": True}
