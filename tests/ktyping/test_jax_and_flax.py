"""Under transformations of jax, and in flax modules."""

import inspect

import cloudpickle
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kauldron.ktyping as kt
import kauldron.typing as older
from kauldron.ktyping import Float


@kt.typechecked
def affine(x: Float["b n"], w: Float["n m"]) -> Float["b m"]:
    kt.check_type(x, Float["b n"])
    return jnp.zeros(kt.shape("b m")) + x @ w


@kt.typechecked
def wrong(x: Float["b n"], w: Float["n m"]) -> Float["m b"]:
    return x @ w


@kt.typechecked
def longer(x: Float["b n"], w: Float["n m"]) -> Float["b+1 m"]:
    return x @ w


X, W = jnp.ones((2, 3)), jnp.ones((3, 4))

TRANSFORMS = {
    "jit": lambda f: jax.jit(f)(X, W),
    "vmap": lambda f: jax.vmap(f, in_axes=(0, None))(X[None], W)[0],
    "grad": lambda f: jax.grad(lambda x, w: f(x, w).sum())(X, W),
    "eval_shape": lambda f: jax.eval_shape(f, X, W),
    "scan": lambda f: jax.lax.scan(lambda c, _: (c, f(c, W)), X, None, length=2)[1][0],
    "jvp": lambda f: jax.jvp(f, (X, W), (X, W))[1],
    "checkpoint": lambda f: jax.checkpoint(f)(X, W),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_correct_function_runs_and_wrong_one_raises_at_trace_time(name):
    expected = (2, 3) if name == "grad" else (2, 4)
    assert TRANSFORMS[name](affine).shape == expected
    with pytest.raises(kt.KTypeCheckError, match="return value"):
        TRANSFORMS[name](wrong)


def test_check_runs_once_per_trace():
    calls = []

    @kt.typechecked
    def f(x: Float["n"]):
        calls.append(kt.dim["n"])
        return x

    jitted = jax.jit(f)
    for _ in range(3):
        jitted(jnp.ones(2))
    assert calls == [2]


def test_export_with_symbolic_sizes():
    b, n = jax.export.symbolic_shape("B, N")
    x = jax.ShapeDtypeStruct((b, n), jnp.float32)
    w = jax.ShapeDtypeStruct((n, 4), jnp.float32)
    exported = jax.export.export(jax.jit(affine))(x, w)
    np.testing.assert_allclose(
        exported.call(np.ones((5, 3), "f4"), W), 3 * np.ones((5, 4))
    )
    # `B` and 4 may be equal, so `wrong` is only refused for sizes that provably differ.
    with pytest.raises(kt.KTypeCheckError, match="return value"):
        jax.export.export(jax.jit(longer))(x, w)


def test_symbolic_sizes_are_not_remembered_as_concrete_ones():
    b, n = jax.export.symbolic_shape("B, N")
    for shape, fits in (((b, b), True), ((b, b + 1), False), ((b, n), True)):

        @kt.typechecked
        def square(x: Float["k k"]):
            return x

        struct = jax.ShapeDtypeStruct(shape, "float32")
        for _ in range(2):
            if fits:
                jax.eval_shape(square, struct)
            else:
                with pytest.raises(kt.KTypeCheckError):
                    jax.eval_shape(square, struct)


def test_values_are_never_read():
    @kt.typechecked
    def f(x: Float["n"]) -> Float["n"]:
        return x

    array = jnp.ones(3)
    array.delete()
    assert f(array) is array


# --------------------------------------------------------------------------------------
# flax
# --------------------------------------------------------------------------------------


def _encoder(float_type, decorators):
    def __call__(self, input: float_type["*b h w c"]) -> float_type["*b h w c"]:
        return nn.Dense(input.shape[-1])(input)

    undecorated = __call__
    for decorator in decorators:
        __call__ = decorator(__call__)
    cls = type("Encoder", (nn.Module,), {"__call__": __call__, "__module__": __name__})
    return cls, undecorated


ORDERS = {
    "unchecked": (nn.compact,),
    "checked outside": (nn.compact, kt.typechecked),
    "checked inside": (kt.typechecked, nn.compact),
    "older outside": (nn.compact, older.typechecked),
    "older inside": (older.typechecked, nn.compact),
}


@pytest.mark.parametrize(
    "float_type", [kt.Float, older.Float], ids=["ktyping", "typing"]
)
@pytest.mark.parametrize("order", ORDERS)
def test_module_initialises_applies_and_keeps_its_signature(float_type, order):
    cls, undecorated = _encoder(float_type, ORDERS[order])
    image = jnp.ones((2, 4, 4, 3))
    variables = cls().init(jax.random.key(0), image)
    assert cls().apply(variables, image).shape == image.shape
    signature = inspect.signature(cls.__call__)
    assert list(signature.parameters) == ["self", "input"]
    assert signature == inspect.signature(undecorated)
    if order != "unchecked":
        with pytest.raises(kt.KTypeCheckError, match="argument input"):
            cls().init(jax.random.key(0), image.astype(int))


def test_module_is_wired_by_keys():
    kontext = pytest.importorskip("kauldron.kontext", reason="wiring is kontext's part")

    class Model(nn.Module):
        x: kontext.Key = "batch.image"

        @nn.compact
        @kt.typechecked
        def __call__(self, x: Float["*b h w c"]) -> Float["*b h w c"]:
            return x

    context = {"batch": {"image": jnp.ones((1, 2, 2, 3))}}
    kwargs = kontext.resolve_from_keyed_obj(context, Model())
    assert Model().apply({}, **kwargs).shape == (1, 2, 2, 3)


# --------------------------------------------------------------------------------------
# Functions that travel
# --------------------------------------------------------------------------------------


def _notebook_function(offset):
    """A closure, which pickle cannot find by name."""

    @kt.typechecked
    def shifted(x: Float["n"], *, k: int = 1) -> Float["n"]:
        if x.size > 5:
            return shifted(x[:5])
        assert kt.dim["n"] == x.size
        return x + offset * k

    return shifted


def test_checked_closure_survives_cloudpickle_and_still_checks():
    loaded = cloudpickle.loads(cloudpickle.dumps(_notebook_function(2)))
    assert loaded(np.ones(3), k=2).tolist() == [5.0, 5.0, 5.0]
    with pytest.raises(kt.KTypeCheckError, match="argument x"):
        loaded(np.ones((3, 3)))
    with pytest.raises(kt.KTypeCheckError, match="return value"):
        loaded(np.ones(6))


def test_checked_closure_still_travels_after_it_was_called():
    function = _notebook_function(2)
    function(np.ones(3))
    loaded = cloudpickle.loads(cloudpickle.dumps(function))
    assert loaded(np.ones(3)).sum() == 9


def test_undecorated_function_brings_its_checked_self_along():
    function = _notebook_function(2).__wrapped__
    loaded = cloudpickle.loads(cloudpickle.dumps(function))
    assert loaded(np.ones(6)).shape == (5,)


def test_checked_generator_and_dataclass_survive_cloudpickle():
    import dataclasses
    from collections.abc import Iterator

    @kt.typechecked
    def rows(x: Float["n m"]) -> Iterator[Float["m"]]:
        yield from x

    @kt.typechecked
    @dataclasses.dataclass
    class Pair:
        x: Float["n"]
        y: Float["n"]

    Pair(np.ones(2), np.ones(2))
    payload = cloudpickle.dumps((rows, Pair))
    del Pair
    loaded_rows, loaded_pair = _load_elsewhere(payload)
    assert loaded_rows == 2
    assert "value of field 'y'" in loaded_pair


def _load_elsewhere(payload):
    """Load in a fresh process: there the classes do not exist yet."""
    import subprocess
    import sys

    script = """
import sys, cloudpickle, numpy as np
rows, pair = cloudpickle.loads(sys.stdin.buffer.read())
print(len(list(rows(np.ones((2, 3))))))
try:
    pair(np.ones(2), np.ones(3))
except Exception as error:
    print(type(error).__name__, str(error).splitlines()[0])
"""
    result = subprocess.run(
        [sys.executable, "-c", script], input=payload, capture_output=True, check=False
    )
    assert not result.stderr, result.stderr.decode()
    first, second = result.stdout.decode().splitlines()
    return int(first), second
