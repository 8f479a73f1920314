"""The mode of a module, and its intermediate values."""

import inspect
import subprocess
import sys
import textwrap
import threading
import traceback

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd
from kauldron.nn import flax_hook
from tests import processes

#
# Training or evaluation
#


KEY = jax.random.PRNGKey(0)
X = np.ones((2, 3), np.float32)


class Mode(nn.Module):
    """Adds 1 in training."""

    is_training = kd.nn.train_property()

    def __call__(self, x):
        return x + 1.0 if self.is_training else x


class Outer(nn.Module):
    """Its own mode and that of a sub-module, the latter overridden or not."""

    inner_mode: bool | None = None
    is_training = kd.nn.train_property()

    @nn.compact
    def __call__(self, x):
        if self.inner_mode is None:
            inner = Mode()(x)
        else:
            with kd.nn.set_train_property(self.inner_mode):
                inner = Mode()(x)
        return inner + (10.0 if self.is_training else 0.0)


def _apply(model, x=0.0, **kwargs):
    return float(model.apply({}, x, **kwargs))


# --------------------------------------------------------------------------------------
# Where the value comes from
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_training, expected", [(True, 11.0), (False, 0.0)])
def test_apply_sets_the_mode_of_all_modules(is_training, expected):
    assert _apply(Outer(), is_training_property=is_training) == expected


@pytest.mark.parametrize("is_training, expected", [(True, 11.0), (False, 0.0)])
def test_init_sets_the_mode_of_all_modules(is_training, expected):
    model = Outer()
    out, _ = model.init_with_output(KEY, 0.0, is_training_property=is_training)
    assert out == expected
    assert model.init(KEY, 0.0, is_training_property=is_training) == {}


def test_override_holds_inside_the_block_only():
    assert _apply(Outer(inner_mode=False), is_training_property=True) == 10.0
    assert _apply(Outer(inner_mode=True), is_training_property=False) == 1.0


def test_override_ends_when_the_block_raises():
    with kd.nn.set_train_property(True):
        with pytest.raises(RuntimeError), kd.nn.set_train_property(False):
            raise RuntimeError
        assert _apply(Mode()) == 1.0


def test_apply_restores_the_mode_after_an_exception():
    class Fails(nn.Module):
        def __call__(self):
            raise RuntimeError

    with kd.nn.set_train_property(True):
        with pytest.raises(RuntimeError):
            Fails().apply({}, is_training_property=False)
        assert _apply(Mode()) == 1.0


def test_module_called_by_one_that_knows_another_keyword():
    class Foreign(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            with kd.nn.set_train_property(train):
                return Mode()(x)

    assert Foreign().apply({}, 0.0, train=True) == 1.0
    assert Foreign().apply({}, 0.0, train=False) == 0.0


def test_bound_module():
    bound = Mode().bind({})
    with kd.nn.set_train_property(True):
        assert bound(0.0) == 1.0


def test_none_leaves_the_current_value():
    with kd.nn.set_train_property(True):
        assert _apply(Mode(), is_training_property=None) == 1.0


def test_keyword_of_an_inner_apply_wins():
    class Nested(nn.Module):
        is_training = kd.nn.train_property()

        def __call__(self, x):
            inner = Mode(parent=None).apply({}, x, is_training_property=False)
            return inner + (10.0 if self.is_training else 0.0)

    assert _apply(Nested(), is_training_property=True) == 10.0


def test_nested_blocks_innermost_wins():
    with kd.nn.set_train_property(True):
        with kd.nn.set_train_property(False), kd.nn.set_train_property(True):
            assert _apply(Mode()) == 1.0
        assert _apply(Mode()) == 1.0
    with pytest.raises(ValueError, match="was not set"):
        _apply(Mode())


def test_keyword_is_not_forwarded_to_the_call():
    class TakesKwargs(nn.Module):
        def __call__(self, **kwargs):
            return kwargs

    assert TakesKwargs().apply({}, is_training_property=True) == {}


def test_mode_is_known_in_setup():
    class WithSetup(nn.Module):
        is_training = kd.nn.train_property()

        def setup(self):
            self.offset = 1.0 if self.is_training else 0.0

        def __call__(self, x):
            return x + self.offset

    assert _apply(WithSetup(), is_training_property=True) == 1.0


def test_other_method():
    class TwoMethods(nn.Module):
        is_training = kd.nn.train_property()

        def __call__(self):
            return None

        def other(self):
            return self.is_training

    model = TwoMethods()
    assert model.apply({}, method="other", is_training_property=True) is True
    assert model.apply({}, method=model.other, is_training_property=False) is False


def test_property_under_another_name():
    class Renamed(nn.Module):
        train = kd.nn.train_property()

        def __call__(self):
            return self.train

    assert Renamed().apply({}, is_training_property=True) is True
    with pytest.raises(ValueError, match="`train` property can only be called"):
        Renamed().train


def test_lazy_init_and_tabulate_pass_the_keyword_on():
    class Net(nn.Module):
        is_training = kd.nn.train_property()

        @nn.compact
        def __call__(self, x):
            return nn.Dense(4 if self.is_training else 2)(x)

    spec = jax.ShapeDtypeStruct((1, 3), jnp.float32)
    params = Net().lazy_init(KEY, spec, is_training_property=False)
    assert params["params"]["Dense_0"]["kernel"].shape == (3, 2)
    table = Net().tabulate(KEY, X, is_training_property=True)
    assert "Total Parameters: 16" in table
    table = nn.tabulate(Net(), KEY)(X, is_training_property=False)
    assert "Total Parameters: 8" in table


def test_class_that_overrides_apply():
    class Logged(Mode):
        def apply(self, *args, **kwargs):
            return super().apply(*args, **kwargs) + 100.0

    assert _apply(Logged(), is_training_property=True) == 101.0


# --------------------------------------------------------------------------------------
# Wrong use
# --------------------------------------------------------------------------------------


def test_reading_on_an_unbound_module():
    with pytest.raises(
        ValueError, match=r"`is_training` property can only be called inside `\.init`"
    ):
        Mode().is_training


def test_reading_without_a_value_names_both_remedies():
    with pytest.raises(
        ValueError,
        match=r"`is_training_property=` kwargs was not set.*set_train_property",
    ):
        Mode().apply({}, 0.0)


@pytest.mark.parametrize(
    "value", [1, 0, "train", 1.0, np.ones(1, bool), jnp.array(True)]
)
def test_values_that_are_no_bool(value):
    with pytest.raises(ValueError, match=f"must be a bool, not {type(value).__name__}"):
        Mode().apply({}, 0.0, is_training_property=value)
    with pytest.raises(ValueError, match="must be a bool"):
        kd.nn.set_train_property(value).__enter__()


def test_none_is_no_mode():
    with pytest.raises(ValueError, match="must be a bool"):
        kd.nn.set_train_property(None).__enter__()


def test_numpy_bool_is_accepted():
    assert _apply(Mode(), is_training_property=np.bool_(True)) == 1.0


def test_traced_value_tells_how_to_make_it_static():
    def apply(is_training):
        return Mode().apply({}, 0.0, is_training_property=is_training)

    with pytest.raises(ValueError, match='static_argnames="is_training_property"'):
        jax.jit(apply)(True)


def test_static_argument_of_a_jitted_apply():
    apply = jax.jit(Mode().apply, static_argnames="is_training_property")
    assert apply({}, 0.0, is_training_property=True) == 1.0
    assert apply({}, 0.0, is_training_property=False) == 0.0


@pytest.mark.parametrize("name", ["train_property", "interms_property"])
def test_annotated_property_is_refused(name):
    # Python 3.11 wraps what `__set_name__` raises.
    with pytest.raises((TypeError, RuntimeError)) as info:

        class Wrong(nn.Module):
            is_training: bool = getattr(kd.nn, name)()

    error = info.value if isinstance(info.value, TypeError) else info.value.__cause__
    assert isinstance(error, TypeError)
    assert "Drop the annotation" in str(error)
    assert "Wrong.is_training" in str(error)


def test_property_cannot_be_assigned():
    with pytest.raises(AttributeError):
        Mode().is_training = True


def test_class_access_gives_the_descriptor():
    class Plain:
        is_training = kd.nn.train_property()

    assert Plain.is_training is Plain.__dict__["is_training"]
    assert isinstance(Plain.is_training, property)


# --------------------------------------------------------------------------------------
# Caches of traces
# --------------------------------------------------------------------------------------


def test_jitted_function_has_one_trace_for_each_mode():
    traces = []

    @jax.jit
    def run(x):
        traces.append(None)
        return Mode().apply({}, x)

    for _ in range(2):
        for mode in (True, False, True):
            with kd.nn.set_train_property(mode):
                assert run(0.0) == (1.0 if mode else 0.0)
    assert len(traces) == 2
    with pytest.raises(ValueError, match="was not set"):
        run(0.0)


def test_jitted_function_is_traced_once_more_without_a_value():
    traces = []

    @jax.jit
    def double(x):
        traces.append(None)
        return 2 * x

    with kd.nn.set_train_property(True):
        double(1.0)
    with kd.nn.set_train_property(False):
        double(1.0)
    double(1.0)
    double(2.0)
    assert len(traces) == 3


def test_compiled_function_keeps_the_mode_it_was_lowered_in():
    with kd.nn.set_train_property(True):
        compiled = jax.jit(lambda x: Mode().apply({}, x)).lower(0.0).compile()
    assert compiled(0.0) == 1.0


def test_nn_jit_gives_the_eval_result_after_a_training_trace():
    model = nn.jit(Mode)()
    for mode in (True, False, True):
        assert _apply(model, is_training_property=mode) == (1.0 if mode else 0.0)


def test_toggling_around_one_nn_jit_module():
    class Both(nn.Module):
        @nn.compact
        def __call__(self, x):
            inner = nn.jit(Mode)()
            with kd.nn.set_train_property(True):
                first = inner(x)
            with kd.nn.set_train_property(False):
                second = inner(x)
            return first, second, inner(x)

    out = Both().apply({}, 0.0, is_training_property=True)
    assert [float(v) for v in out] == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("mode", [True, False])
def test_grad_eval_shape_and_vmap(mode):
    def loss(x):
        return Mode().apply({}, x, is_training_property=mode) ** 2

    assert jax.grad(loss)(1.0) == (4.0 if mode else 2.0)
    assert jax.eval_shape(loss, 1.0).shape == ()
    out = jax.vmap(loss)(np.zeros(2, np.float32))
    assert out.tolist() == ([1.0, 1.0] if mode else [0.0, 0.0])


class ScanBody(nn.Module):
    is_training = kd.nn.train_property()

    @nn.compact
    def __call__(self, carry, _):
        return Mode()(carry), None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: nn.remat(Mode)()(x),
        lambda x: nn.vmap(Mode, variable_axes={"params": 0}, split_rngs={})()(x[None])[
            0
        ],
        lambda x: nn.scan(ScanBody, length=1)()(x, None)[0],
        lambda x: nn.remat(nn.jit(Mode))()(x),
    ],
    ids=["remat", "vmap", "scan", "remat of jit"],
)
def test_lifted_transforms(wrap):
    class Lifted(nn.Module):
        @nn.compact
        def __call__(self, x):
            return wrap(x)

    run = jax.jit(Lifted().apply, static_argnames="is_training_property")
    zero = np.zeros((), np.float32)
    for mode in (True, False, True):
        expected = 1.0 if mode else 0.0
        assert Lifted().apply({}, zero, is_training_property=mode) == expected
        assert run({}, zero, is_training_property=mode) == expected


# --------------------------------------------------------------------------------------
# Threads
# --------------------------------------------------------------------------------------


def test_threads_do_not_see_each_other():
    barrier = threading.Barrier(2, timeout=60)
    results = {True: [], False: []}

    class Meets(nn.Module):
        is_training = kd.nn.train_property()

        def __call__(self):
            barrier.wait()  # both threads are inside `apply`
            return self.is_training

    def work(mode):
        for _ in range(20):
            results[mode].append(Meets().apply({}, is_training_property=mode))

    threads = [threading.Thread(target=work, args=(mode,)) for mode in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {True: [True] * 20, False: [False] * 20}


def test_new_thread_starts_without_a_value():
    errors = []

    def work():
        try:
            Mode().apply({}, 0.0)
        except ValueError as error:
            errors.append(str(error))

    with kd.nn.set_train_property(True):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(errors) == 1
    assert "was not set" in errors[0]


# --------------------------------------------------------------------------------------
# The hook in flax
# --------------------------------------------------------------------------------------


def test_hook_is_in_place_whatever_is_imported_first():
    script = """
        import sys
        from kauldron import kd
        assert not {"flax", "jax"} & set(sys.modules)
        import flax.linen as nn, jax, numpy as np
        init = lambda key: nn.Dense(3).init(key, np.ones(2), is_training_property=True)
        jax.eval_shape(lambda: init(jax.random.key(0)))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
    processes.run_script_with_jax(
        """
        import flax.linen as nn, jax, numpy as np
        from kauldron import kd
        init = lambda key: nn.Dense(3).init(key, np.ones(2), is_training_property=True)
        jax.eval_shape(lambda: init(jax.random.key(0)))
        """
    )


@pytest.mark.parametrize("name", ["modules", "nn"])
@pytest.mark.parametrize("first", ["ours", "flax"])
def test_hook_is_in_place_without_kd(name, first):
    imports = [f"from kauldron import {name} as knn", "import flax.linen as nn"]
    processes.run_script_with_jax(
        "\n".join(imports if first == "ours" else reversed(imports))
        + """
import sys
assert "kauldron.kd" not in sys.modules

class Net(nn.Module):
    is_training = knn.train_property()

    def __call__(self):
        return self.is_training

assert Net().apply({}, is_training_property=True) is True
"""
    )


def test_touching_dropout_loads_no_foreign_library():
    processes.run_script_with_jax(
        """
        import sys
        from kauldron import kd
        kd.nn.Dropout
        heavy = {"tensorflow", "tensorflow_datasets", "orbax", "grain", "sklearn",
                 "pandas", "matplotlib", "cv2"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        """
    )


def test_installing_again_does_not_stack():
    flax_hook.install()
    flax_hook.install()
    for name in ("init", "init_with_output", "apply"):
        original = getattr(nn.Module, name).__kauldron_original__
        assert not hasattr(original, "__kauldron_original__")
    assert _apply(Mode(), is_training_property=True) == 1.0


def test_signature_and_name_are_those_of_flax():
    assert list(inspect.signature(nn.Module.apply).parameters)[:3] == [
        "self",
        "variables",
        "args",
    ]
    assert nn.Module.init.__name__ == "init"
    assert "Initializes" in nn.Module.init.__doc__


def test_wrapper_frame_asks_to_be_hidden():
    class Fails(nn.Module):
        def __call__(self):
            raise RuntimeError

    with pytest.raises(RuntimeError) as info:
        Fails().apply({}, is_training_property=True)
    frames = [frame for frame, _ in traceback.walk_tb(info.value.__traceback__)]
    ours = [f for f in frames if f.f_code.co_filename == flax_hook.__file__]
    assert all(f.f_locals.get("__tracebackhide__") for f in ours)


# --------------------------------------------------------------------------------------
# Keys
# --------------------------------------------------------------------------------------


class Noisy(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(x) + jax.random.normal(self.make_rng("noise"))


def _equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_our_keys_are_rngs_of_flax():
    key = kd.random.PRNGKey(3)
    plain = {"params": key.rng, "noise": key.rng}
    expected = Noisy().init(plain, X)
    _equal(Noisy().init({"params": key, "noise": key}, X), expected)
    _equal(Noisy().init(rngs={"params": key, "noise": key.rng}, x=X), expected)
    _equal(
        Noisy().apply(expected, X, rngs={"noise": key}),
        Noisy().apply(expected, X, rngs={"noise": key.rng}),
    )
    _equal(nn.Dense(2).init(key, X), nn.Dense(2).init(key.rng, X))
    _equal(
        nn.Dense(2).init_with_output(key, X), nn.Dense(2).init_with_output(key.rng, X)
    )
    _equal(jax.jit(nn.Dense(2).init)(key, X), nn.Dense(2).init(key.rng, X))


def test_typed_keys_are_rngs_of_flax():
    typed = jax.random.key(3)
    _equal(nn.Dense(2).init(kd.random.PRNGKey(typed), X), nn.Dense(2).init(typed, X))


def test_make_rng_gives_a_plain_key():
    class MakesKey(nn.Module):
        def __call__(self):
            return self.make_rng("noise")

    key = MakesKey().apply({}, rngs={"noise": kd.random.PRNGKey(0)})
    assert isinstance(key, jax.Array)


#
# Intermediate values
#


CAPTURE = {"capture_intermediates": True, "mutable": ["intermediates"]}


class Block(nn.Module):
    interms = kd.nn.interms_property()

    @nn.compact
    def __call__(self, x):
        self.interms["hidden"] = nn.Dense(3, name="proj")(x)
        return self.interms["hidden"] + self.interms.get_by_path(".proj.__call__[0]")


class Stores(nn.Module):
    """Stores its input and gives it back."""

    value: float = 1.0
    interms = kd.nn.interms_property()

    def __call__(self, x):
        self.interms["h"] = x * self.value
        return self.interms["h"]


def reader(*paths):
    """A module that calls `Stores` as `a`, then reads paths from inside `b.inner`."""

    class Reads(nn.Module):
        interms = kd.nn.interms_property()

        def __call__(self, x):
            self.interms["own"] = x
            return [self.interms.get_by_path(path) for path in paths]

    class Middle(nn.Module):
        @nn.compact
        def __call__(self, x):
            Stores(value=3.0, name="sibling")(x)
            return Reads(name="inner")(x)

    class Root(nn.Module):
        interms = kd.nn.interms_property()

        @nn.compact
        def __call__(self, x):
            self.interms["top"] = 10 * x
            Stores(value=2.0, name="a")(x)
            return Middle(name="b")(x)

    return Root()


def test_value_of_own_and_of_submodule():
    variables = Block().init(KEY, X, capture_intermediates=True)
    out, state = Block().apply({"params": variables["params"]}, X, **CAPTURE)
    projected = state["intermediates"]["proj"]["__call__"][0]
    np.testing.assert_array_equal(out, 2 * projected)
    np.testing.assert_array_equal(state["intermediates"]["hidden"][0], projected)


@pytest.mark.parametrize("kwargs", [{}, {"mutable": ["intermediates"]}])
def test_stored_value_can_be_read_with_and_without_capture(kwargs):
    out = Stores(value=5.0).apply({}, 2.0, **kwargs)
    assert (out[0] if kwargs else out) == 10.0


def test_storing_twice_appends_and_reading_gives_the_last():
    class Twice(nn.Module):
        interms = kd.nn.interms_property()

        def __call__(self):
            self.interms["h"] = 1
            self.interms["h"] = 2
            return self.interms["h"], self.interms.get_by_path(".h")

    assert Twice().apply({}) == (2, (1, 2))
    out, state = Twice().apply({}, mutable=True)
    assert out == (2, (1, 2))
    assert state["intermediates"]["h"] == (1, 2)


@pytest.mark.parametrize("mutable", [False, ["intermediates"]])
@pytest.mark.parametrize(
    "path, expected",
    [
        ("a.h[0]", 2.0),
        ("top[0]", 10.0),
        ("b.inner.own[0]", 1.0),
        (".own[0]", 1.0),
        (".own", (1.0,)),
        ("..sibling.h[0]", 3.0),
        ("...a.h[0]", 2.0),
        ("...top[0]", 10.0),
        ("a", {"h": (2.0,)}),
    ],
)
def test_absolute_relative_and_parent_paths(path, expected, mutable):
    out = reader(path).apply({}, 1.0, mutable=mutable)
    (value,) = out[0] if mutable else out
    assert value == expected


def test_climbing_above_the_root():
    with pytest.raises(ValueError, match="climbs above the root"):
        reader("....x").apply({}, 1.0)


def test_plain_init_works_with_stored_values():
    assert Stores().init(KEY, 1.0) == {}


def test_calls_do_not_see_each_others_values():
    class Maybe(nn.Module):
        store: bool
        interms = kd.nn.interms_property()

        def __call__(self):
            if self.store:
                self.interms["h"] = 1
            return "h" in self.interms

    assert Maybe(store=True).apply({}) is True
    assert Maybe(store=False).apply({}) is False


def test_contains_knows_stored_names_only():
    class Contains(nn.Module):
        interms = kd.nn.interms_property()

        @nn.compact
        def __call__(self, x):
            Stores(name="child")(x)
            before = "h" in self.interms
            self.interms["h"] = x
            return before, "h" in self.interms, "child" in self.interms

    assert Contains().apply({}, 1.0) == (False, True, False)
    assert Contains().apply({}, 1.0, mutable=True)[0] == (False, True, False)


def test_missing_name_lists_what_is_stored_and_how_to_capture():
    class Missing(nn.Module):
        interms = kd.nn.interms_property()

        def __call__(self):
            self.interms["stored"] = 1
            return self.interms["missing"]

    with pytest.raises(
        KeyError, match=r"'missing'.*stored.*capture_intermediates=True"
    ):
        Missing().apply({})
    with pytest.raises(KeyError, match="'missing'") as info:
        Missing().apply({}, mutable=True)
    assert "capture_intermediates" not in str(info.value)


def test_missing_path_lists_what_is_stored():
    with pytest.raises(KeyError, match=r"a\.nope.*a\.h.*capture_intermediates"):
        reader("a.nope").apply({}, 1.0)


def test_output_of_a_module_needs_capture():
    params = {"params": nn.Dense(3).init(KEY, X)["params"]}
    with pytest.raises(KeyError, match="capture_intermediates=True"):
        Block().apply({"params": {"proj": params["params"]}}, X)


def test_unbound_module():
    with pytest.raises(ValueError, match="`interms` property can only be called"):
        Stores().interms


def test_under_jit_and_grad():
    def loss(x):
        return Stores(value=3.0).apply({}, x)

    assert jax.jit(jax.grad(loss))(1.0) == 3.0
    assert jax.jit(loss)(2.0) == 6.0


class Lifted(nn.Module):
    """Stores and reads inside a lifted transform."""

    interms = kd.nn.interms_property()

    def __call__(self, carry, _=None):
        self.interms["h"] = carry + 1
        absolute = self.interms.get_by_path("lifted.h[0]")
        return self.interms["h"] + absolute + self.interms.get_by_path(".h[0]"), None


@pytest.mark.parametrize("mutable", [False, ["intermediates"]])
@pytest.mark.parametrize("lift", [nn.jit, nn.remat, lambda m: nn.scan(m, length=1)])
def test_inside_lifted_transforms(lift, mutable):
    class Root(nn.Module):
        @nn.compact
        def __call__(self, x):
            return lift(Lifted)(name="lifted")(x, None)[0]

    out = Root().apply({}, jnp.zeros(()), mutable=mutable)
    assert (out[0] if mutable else out) == 3.0


def test_path_outside_of_a_lifted_transform():
    class Reads(nn.Module):
        interms = kd.nn.interms_property()

        def __call__(self, x):
            return self.interms.get_by_path("a.h[0]")

    class Root(nn.Module):
        @nn.compact
        def __call__(self, x):
            Stores(name="a")(x)
            return nn.jit(Reads)(name="jitted")(x)

    with pytest.raises(KeyError, match="outside of the lifted transform"):
        Root().apply({}, jnp.zeros(()))
