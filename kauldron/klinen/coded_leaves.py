"""Random keys and integers in a form that `jax.grad` and optimizers leave alone.

`jax.grad` accepts only floating-point leaves, and optimizers compute with every leaf. A
model is to go through both with its keys in it. So what is no floating-point array is
exposed as its bytes, one float32 each: values from 0 to 255 are exact in every float
dtype, their gradient is zero, and no value is an invalid key.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Form:
    """What a leaf is in truth.

    Attributes:
      dtype: Name of the dtype of an integer or boolean array; of the words of a key.
      key_impl: For typed keys, the random number generator.
    """

    dtype: str
    key_impl: Any = None


PLAIN = Form("as it is")


_ABSENT: Any = object()


class CodedTree:
    """A tree of arrays and its coded form, each made of the other when it is needed.

    Args:
      values: The tree as users see it, or else:
      codes: The tree with floating-point leaves only,
      forms: and what its leaves are in truth, in order.
    """

    def __init__(
        self,
        values: Any = _ABSENT,
        *,
        codes: Any = _ABSENT,
        forms: tuple[Form, ...] | None = None,
    ):
        self._values = values
        self._codes = codes
        if forms is None:
            forms = tuple(map(_form_of, jax.tree.leaves(values)))
        self.forms = forms

    def values(self) -> Any:
        """The tree as users see it."""
        if self._values is not _ABSENT:
            return self._values
        values = self._convert(_decode, self._codes)
        if _is_concrete(self._codes):  # a traced value must not outlive its trace
            self._values = values
        return values

    def codes(self) -> Any:
        """The tree with floating-point leaves only."""
        if self._codes is not _ABSENT:
            return self._codes
        codes = self._convert(_encode, self._values)
        if _is_concrete(self._values):
            self._codes = codes
        return codes

    def _convert(self, fn: Callable[..., Any], tree: Any) -> Any:
        if all(form == PLAIN for form in self.forms):
            return tree
        leaves, treedef = jax.tree.flatten(tree)
        if len(leaves) != len(self.forms):
            raise ValueError(
                f"This model had {len(self.forms)} leaves of state and random keys, but "
                f"holds {len(leaves)} now: a transformation put other things in their "
                "place, so it cannot be used as a model."
            )
        return treedef.unflatten(map(_converter(fn), leaves, self.forms))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.codes(), self.forms)


def _restore(codes: Any, forms: tuple[Form, ...]) -> CodedTree:
    return CodedTree(codes=codes, forms=forms)


def _form_of(leaf: Any) -> Form:
    if isinstance(leaf, bool | int):
        leaf = np.asarray(leaf)
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return PLAIN
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return Form("uint32", key_impl=jax.random.key_impl(leaf))
    if jnp.issubdtype(dtype, jnp.integer) or dtype == np.bool_:
        return Form(str(jax.dtypes.canonicalize_dtype(dtype)))
    return PLAIN


def _converter(fn: Callable[..., Any]) -> Callable[[Any, Form], Any]:
    def convert(leaf: Any, form: Form) -> Any:
        if form == PLAIN:
            return leaf
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jax.eval_shape(functools.partial(fn, form=form), leaf)
        if isinstance(leaf, jax.core.Tracer):
            return fn(leaf, form=form)
        with jax.ensure_compile_time_eval():  # stays concrete inside of a trace
            return fn(leaf, form=form)

    return convert


@functools.partial(jax.jit, inline=True, static_argnames="form")
def _encode(value: jax.Array, form: Form) -> jax.Array:
    if form.key_impl is not None:
        value = jax.random.key_data(value)
    if form.dtype == "bool":
        return value.astype(jnp.float32)
    data = jnp.asarray(value, form.dtype)
    return jax.lax.bitcast_convert_type(data, jnp.uint8).astype(jnp.float32)


@functools.partial(jax.jit, inline=True, static_argnames="form")
def _decode(code: jax.Array, form: Form) -> jax.Array:
    data = (jnp.round(code.astype(jnp.float32)) % 256).astype(jnp.uint8)
    if form.dtype == "bool":
        return data != 0
    data = jax.lax.bitcast_convert_type(data, jnp.dtype(form.dtype))
    if form.key_impl is not None:
        return jax.random.wrap_key_data(data, impl=form.key_impl)
    return data


def _is_concrete(tree: Any) -> bool:
    return not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tree))
