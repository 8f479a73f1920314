"""Storing intermediate values in a module and reading them back."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd

KEY = jax.random.PRNGKey(0)
X = jnp.ones((2, 3))
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
