"""Programs that differ in constants alone: found by comparison, evaluated together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd
from kauldron.train.stacked import programs


def traced(fn, *args):
    return jax.make_jaxpr(fn)(*args)


def stacked(fns, *args):
    """Return the results of all functions, computed by one program under vmap."""
    made = [traced(fn, *args) for fn in fns]
    descriptions = [programs.describe(program) for program in made]
    assert all(descriptions[0].is_same_program(d) for d in descriptions)
    found = programs.differing(descriptions)
    paths = list(found)

    def run(values):
        return programs.evaluate(made[0], dict(zip(paths, values)), *args)[0]

    return jax.jit(jax.vmap(run))([np.stack(values) for values in found.values()])


def make_scan(rate):
    def fn(x):
        return jax.lax.scan(lambda c, y: (c * rate + y, c), x, jnp.arange(3.0))[0]

    return fn


def make_while(rate):
    return lambda x: jax.lax.while_loop(
        lambda c: c < 10 * rate, lambda c: c + rate, x + rate
    )


def make_cond(rate):
    return lambda x: jax.lax.cond(x > rate, lambda: x * rate, lambda: x - rate)


def make_jit(rate):
    return lambda x: jax.jit(lambda y: y * rate)(x) + 1


def make_custom(rate):
    @jax.custom_jvp
    def scale(x):
        return x * rate

    scale.defjvps(lambda t, ans, x: t * rate)
    return lambda x: scale(x) + jax.grad(scale)(x)


def make_seed(rate):
    return lambda x: x * jax.random.normal(jax.random.key(int(rate)), (3,)).sum()


def make_array(rate):
    weights = np.arange(3.0, dtype=np.float32) * rate
    return lambda x: (x * weights).sum()


def make_checkpoint(rate):
    return jax.grad(jax.checkpoint(lambda x: jnp.sin(x * rate) * rate))


def make_result(rate):
    return lambda x: jnp.float32(rate)


MAKERS = [
    make_scan,
    make_while,
    make_cond,
    make_jit,
    make_custom,
    make_seed,
    make_array,
    make_checkpoint,
    make_result,
]


@pytest.fixture(scope="module")
def lanes():
    """Results of all functions: computed by themselves, and by one program for each kind."""

    @jax.jit
    def compute(x):
        fns = {make: [make(rate) for rate in (1.0, 2.0, 5.0)] for make in MAKERS}
        alone = {make.__name__: [fn(x) for fn in own] for make, own in fns.items()}
        together = {make.__name__: stacked(own, x) for make, own in fns.items()}
        return alone, together

    return compute(np.float32(1.5))


@pytest.mark.parametrize("make", MAKERS)
def test_each_lane_computes_what_its_function_does(make, lanes):
    alone, together = (results[make.__name__] for results in lanes)
    assert len(set(map(float, alone))) > 1
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_only_constants_that_differ_become_inputs():
    fns = [lambda x: x * 2.0 + 1.0, lambda x: x * 3.0 + 1.0]
    found = programs.differing([programs.describe(traced(fn, 1.0)) for fn in fns])
    assert [list(map(float, values)) for values in found.values()] == [[2.0, 3.0]]


def test_not_a_number_is_a_constant_like_others():
    fns = [lambda x: x * np.nan, lambda x: x * np.nan]
    assert not programs.differing([programs.describe(traced(f, 1.0)) for f in fns])


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.sum() * 2.0,  # one operation less
        lambda x: (x + 1.0).sum() * jnp.zeros(2).sum(),
        lambda x: (x**3).sum() * 2.0,  # the exponent is part of the operation
        lambda x: ((x**2).sum() * 2.0).astype(jnp.int32),
    ],
)
def test_other_operations_are_another_program(other):
    x = jnp.ones(3)
    one = programs.describe(traced(lambda x: (x**2).sum() * 2.0, x))
    assert not one.is_same_program(programs.describe(traced(other, x)))


def test_functions_that_are_called_back_are_another_program():
    def make(rate):
        spec = jax.ShapeDtypeStruct((), jnp.float32)
        return lambda x: jax.pure_callback(lambda y: y * rate, spec, x)

    one, two = (programs.describe(traced(make(r), jnp.float32(1))) for r in (1, 2))
    assert not one.is_same_program(two)


def test_convolutions_with_a_kernel_for_each_lane_agree():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 8, 8, 3)), jnp.float32)
    kernels = [
        np.random.default_rng(n).normal(size=(3, 3, 3, 4)).astype(np.float32)
        for n in range(3)
    ]

    def make(kernel):
        def fn(x):
            y = jax.lax.conv_general_dilated(
                x * kernel[0, 0, 0, 0],
                kernel,
                (1, 1),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            return y.sum(axis=(1, 2))

        return fn

    fns = [make(kernel) for kernel in kernels]
    expected = np.stack([fn(x) for fn in fns])
    np.testing.assert_allclose(stacked(fns, x), expected, rtol=1e-4, atol=1e-4)


#
# Compiled once
#


def test_functions_that_are_the_same_program_are_compiled_once():
    shared = programs.SharedJit()

    def make(factor, seed):
        table = jnp.arange(3.0) * factor

        def function(name, x):
            unused = jax.random.key(seed)
            del unused
            return {name: x * table, "twice": 2 * x}

        return shared(function)

    x = jnp.ones(3)
    for factor, seed in [(1, 0), (1, 7), (5, 0)]:
        results = make(factor, seed)("scaled", x)
        np.testing.assert_array_equal(results["scaled"], np.arange(3) * factor)
        np.testing.assert_array_equal(results["twice"], 2 * x)
    assert len(shared.compiled) == 2  # of factor 1, and of factor 5


def test_a_compiled_function_is_shared_for_the_same_arguments_alone():
    shared = programs.SharedJit()
    one, two = (shared(lambda count, x: [x + 1] * count) for _ in range(2))
    for function in (one, two, one):
        assert [y.shape for y in function(2, jnp.zeros(3))] == [(3,), (3,)]
        assert [y.shape for y in function(1, jnp.zeros(3))] == [(3,)]
        assert [y.shape for y in function(1, jnp.zeros((4, 3)))] == [(4, 3)]
    assert len(shared.compiled) == 3


def test_results_of_a_shared_program_keep_their_own_metadata():
    shared = programs.SharedJit()
    metrics = [kd.metrics.Accuracy(logits=key, labels="y") for key in ("a", "b")]
    logits, labels = jnp.ones((2, 3)), jnp.zeros((2, 1), jnp.int32)

    def measure(metric):
        return shared(lambda _, x, y: metric.get_state(logits=x, labels=y))

    states = [measure(metric)(None, logits, labels) for metric in metrics]
    assert len(shared.compiled) == 1
    assert [state.parent for state in states] == metrics
