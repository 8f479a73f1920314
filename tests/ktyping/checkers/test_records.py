"""Dataclasses and TypedDicts: fields share dims with each other, not with functions."""

import dataclasses
import typing

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float


@kt.typechecked
@dataclasses.dataclass
class Batch:
    image: Float["b h"]
    label: Float["b"]
    name: str = "batch"


# --------------------------------------------------------------------------------------
# Construction
# --------------------------------------------------------------------------------------


def test_fields_are_checked_on_construction_and_share_dims():
    batch = Batch(np.ones((2, 3)), np.ones(2))
    assert batch.name == "batch"
    with pytest.raises(kt.KTypeCheckError, match="value of field 'label' has shape"):
        Batch(np.ones((2, 3)), np.ones(4))
    with pytest.raises(kt.KTypeCheckError, match="value of field 'name'"):
        Batch(np.ones((2, 3)), np.ones(2), name=3)


def test_class_keeps_its_identity_and_is_marked():
    @dataclasses.dataclass
    class Plain:
        x: int

    assert kt.typechecked(Plain) is Plain
    assert Plain.__ktyping_wrapped__ is True


def test_fields_are_checked_after_post_init():
    @kt.typechecked
    @dataclasses.dataclass
    class Doubled:
        x: Float["n"]
        y: Float["n"] = None

        def __post_init__(self):
            self.x = np.asarray(self.x, float)
            self.y = self.x * 2

    assert Doubled([1, 2]).y.sum() == 6


@pytest.mark.parametrize(
    "decorator",
    [
        dataclasses.dataclass(frozen=True),
        dataclasses.dataclass(slots=True),
        dataclasses.dataclass(kw_only=True),
        flax.struct.dataclass,
    ],
)
def test_flavours_of_dataclasses(decorator):
    @kt.typechecked
    @decorator
    class Pair:
        x: Float["n"]
        y: Float["n"]

    Pair(x=np.ones(2), y=np.ones(2))
    with pytest.raises(kt.KTypeCheckError, match="field 'y'"):
        Pair(x=np.ones(2), y=np.ones(3))


def test_fields_that_are_not_fields_or_not_set_are_skipped():
    @kt.typechecked
    @dataclasses.dataclass
    class Odd:
        x: int
        scale: dataclasses.InitVar[int]
        count: typing.ClassVar[int] = "not checked"
        late: int = dataclasses.field(init=False)

        def __post_init__(self, scale):
            self.x *= scale

    assert Odd(2, 3).x == 6


def test_f_string_parts_see_fields_and_self():
    @kt.typechecked
    @dataclasses.dataclass
    class Table:
        rows: int
        x: Float["{rows} {self.columns}"]
        columns = 2

    Table(3, np.ones((3, 2)))
    with pytest.raises(kt.KTypeCheckError, match="3 2"):
        Table(3, np.ones((4, 2)))


def test_inheritance():
    class WithoutInit(Batch): ...

    class WithInit(Batch):
        def __init__(self):
            super().__init__("wrong", "types")

    @dataclasses.dataclass
    class Undecorated(Batch):
        extra: int = 0

    @kt.typechecked
    @dataclasses.dataclass
    class Decorated(Batch):
        extra: int = 0

    with pytest.raises(kt.KTypeCheckError):
        WithoutInit("wrong", "types")
    assert WithInit().image == "wrong"
    assert Undecorated("wrong", "types").label == "types"
    with pytest.raises(kt.KTypeCheckError, match="field 'extra'"):
        Decorated(np.ones((2, 3)), np.ones(2), extra="a")


# --------------------------------------------------------------------------------------
# As annotations
# --------------------------------------------------------------------------------------


@kt.typechecked
def use(first: Batch, second: Batch | None = None, b: Float["b"] | None = None) -> int:
    return 0 if b is None else kt.dim["b"]


def test_dims_of_two_instances_and_of_the_function_are_independent():
    two, three = (Batch(np.ones((n, 1)), np.ones(n)) for n in (2, 3))
    assert use(two, three, np.ones(7)) == 7


def test_instance_that_was_changed_is_found():
    batch = Batch(np.ones((2, 3)), np.ones(2))
    batch.label = np.ones(5)
    with pytest.raises(kt.KTypeCheckError) as caught:
        use(batch)
    text = str(caught.value)
    assert "value of field 'label' of argument first = " in text
    assert f"Fields of dataclass 'Batch' at {__file__}:" in text
    assert "> label: Float['b'] = np.f64[5]" in text


def test_wrong_class_is_named():
    with pytest.raises(kt.KTypeCheckError, match="was of type int which is not Batch"):
        use(3)


def test_undecorated_dataclass_is_only_an_instance_check():
    @dataclasses.dataclass
    class Plain:
        x: Float["n"]

    @kt.typechecked
    def f(plain: Plain):
        return plain.x

    assert f(Plain("anything")) == "anything"
    with pytest.raises(kt.KTypeCheckError, match="is not an instance of Plain"):
        f(3)


def test_dataclass_in_the_scope_of_its_maker():
    @kt.typechecked(new_scope=False)
    @dataclasses.dataclass
    class Shared:
        x: Float["n m"]

    @kt.typechecked
    def f(x: Float["n"]):
        Shared(np.ones((3, 4)))
        return kt.dim["m"]

    assert f(np.ones(3)) == 4
    with pytest.raises(kt.KTypeCheckError, match="field 'x'"):
        f(np.ones(2))
    with pytest.raises(kt.NoActiveScopeError):
        Shared(np.ones((3, 4)))


def test_origin_names_the_class_and_its_line():
    with pytest.raises(kt.KTypeCheckError) as caught:
        Batch(1, 2)
    assert f"Origin: dataclass 'Batch' at {__file__}:" in str(caught.value)
    assert caught.value.highlight == "image"


# --------------------------------------------------------------------------------------
# Trees
# --------------------------------------------------------------------------------------


@kt.typechecked
@flax.struct.dataclass
class Params:
    kernel: Float["a b"]
    bias: Float["b"]


@kt.typechecked
@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    kernel: Float["a b"]
    bias: Float["b"]


@kt.typechecked
@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass
class ByHand:
    kernel: Float["a b"]
    bias: Float["b"]

    def tree_flatten(self):
        return (self.kernel, self.bias), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


@pytest.mark.parametrize("cls", [Params, Registered, ByHand])
def test_tree_machinery_may_put_anything_into_the_fields(cls):
    params = cls(jnp.ones((2, 3)), jnp.ones(3))
    assert jax.tree.map(lambda x: x.shape, params).bias == (3,)
    assert jax.eval_shape(lambda p: p, params).bias.shape == (3,)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), params)
    total = jax.vmap(lambda p: p.kernel.sum() + p.bias.sum())(stacked)
    np.testing.assert_allclose(total, [9.0, 9.0])
    grads = jax.grad(lambda p: p.kernel.sum())(params)
    assert grads.bias.shape == (3,)
    final, _ = jax.lax.scan(lambda p, _: (p, None), params, None, length=2)
    assert final.kernel.shape == (2, 3)


@pytest.mark.parametrize("cls", [Params, Registered, ByHand])
def test_construction_by_hand_is_still_checked(cls):
    with pytest.raises(kt.KTypeCheckError):
        cls(jnp.ones((2, 3)), jnp.ones(4))
    with pytest.raises(kt.KTypeCheckError):
        dataclasses.replace(cls(jnp.ones((2, 3)), jnp.ones(3)), bias=jnp.ones(4))


# --------------------------------------------------------------------------------------
# TypedDicts
# --------------------------------------------------------------------------------------


class Example(typing.TypedDict):
    image: Float["h w"]
    mask: Float["h w"]
    label: typing.NotRequired[int]


@kt.typechecked
def compare(a: Example, b: Example, h: Float["h"] | None = None):
    return "h" in kt.dim


def _example(*shape):
    return {"image": np.ones(shape), "mask": np.ones(shape)}


def test_typed_dicts_have_dims_of_their_own():
    assert compare(_example(1, 2), _example(3, 4)) is False
    assert compare(_example(1, 2), _example(3, 4), np.ones(9)) is True


def test_dims_inside_one_typed_dict_must_agree():
    wrong = {"image": np.ones((1, 2)), "mask": np.ones((1, 3))}
    with pytest.raises(kt.KTypeCheckError) as caught:
        compare(_example(1, 2), wrong)
    text = str(caught.value)
    assert "value of key 'mask' of argument b = " in text
    assert f"Fields of TypedDict 'Example' at {__file__}:" in text
    assert "w = 2 was bound by field 'image'" in text


def test_typed_dict_inheritance_and_missing_keys():
    class More(Example):
        extra: Float["h"]

    @kt.typechecked
    def f(x: More): ...

    f({**_example(1, 2), "extra": np.ones(1)})
    with pytest.raises(kt.KTypeCheckError, match=r"field 'image'|key 'extra'"):
        f({**_example(1, 2), "extra": np.ones(2)})
    with pytest.raises(kt.KTypeCheckError, match="missing required key"):
        f(_example(1, 2))
