"""Everything again, with annotations that are strings."""

from __future__ import annotations

import dataclasses
import typing

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float


@kt.typechecked
def transpose(x: Float["a b"], scale: int = 1) -> Float["b a"]:
    assert kt.dim["a"] == x.shape[0]
    return x.T * scale


def test_function():
    assert transpose(np.ones((2, 3))).shape == (3, 2)
    with pytest.raises(kt.KTypeCheckError, match="argument x"):
        transpose(np.ones(3))
    with pytest.raises(kt.KTypeCheckError, match="argument scale"):
        transpose(np.ones((2, 3)), "a")


@kt.typechecked
@dataclasses.dataclass
class Batch:
    image: Float["b h"]
    label: Float["b"]
    other: Batch | None = None


def test_dataclass():
    batch = Batch(np.ones((2, 3)), np.ones(2))
    Batch(np.ones((2, 3)), np.ones(2), batch)
    with pytest.raises(kt.KTypeCheckError, match="field 'label'"):
        Batch(np.ones((2, 3)), np.ones(3))


class Example(typing.TypedDict):
    image: Float["h w"]
    label: typing.NotRequired[int]


def test_typed_dict():
    @kt.typechecked
    def f(x: Example, y: Example):
        return x

    f({"image": np.ones((1, 2))}, {"image": np.ones((3, 4)), "label": 3})
    with pytest.raises(kt.KTypeCheckError):
        f({"image": np.ones((1, 2))}, {"image": np.ones(3)})


class Pair(typing.NamedTuple):
    x: Float["n"]
    y: Float["n"]


def test_named_tuple():
    @kt.typechecked
    def f(pair: Pair):
        return kt.dim["n"]

    assert f(Pair(np.ones(2), np.ones(2))) == 2
    with pytest.raises(kt.KTypeCheckError):
        f(Pair(np.ones(2), np.ones(3)))


class Encoder(nn.Module):
    features: int

    @kt.typechecked
    @nn.compact
    def __call__(self, input: Float["*b h w c"]) -> Float["*b h w {self.features}"]:
        return nn.Dense(self.features)(input)


def test_flax_module():
    x = jnp.ones((2, 4, 4, 3))
    out, _ = Encoder(5).init_with_output(jax.random.key(0), x)
    assert out.shape == (2, 4, 4, 5)
    with pytest.raises(kt.KTypeCheckError, match="argument input"):
        Encoder(5).init(jax.random.key(0), x.astype(int))


def test_annotations_in_messages_are_the_written_text():
    with pytest.raises(kt.KTypeCheckError) as caught:
        transpose(np.ones(3))
    assert "> x: Float['a b'] = np.f64[3]" in str(caught.value)


def test_generator():
    @kt.typechecked
    def rows(x: Float["n m"]) -> typing.Iterator[Float["m"]]:
        yield from x

    assert len(list(rows(np.ones((2, 3))))) == 2
