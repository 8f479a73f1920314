"""Trees of variables: their parts, and a form of them that `jax.grad` accepts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from flax.core import FrozenDict, freeze, unfreeze

from kauldron.klinen.definitions import Path

#
# Parts of nested dicts
#


def subtree(tree: Mapping[str, Any], path: Path) -> FrozenDict[str, Any]:
    """Return the part at a path; empty if there is none.

    >>> subtree({"a": {"b": {"c": 1}}}, ("a", "b"))
    FrozenDict({
        c: 1,
    })
    """
    for name in path:
        tree = tree.get(name, {})
    return tree if isinstance(tree, FrozenDict) else freeze(dict(tree))


def with_subtree(
    tree: Mapping[str, Any], path: Path, new: Mapping[str, Any]
) -> FrozenDict[str, Any]:
    """Return the tree with another part at a path.

    >>> with_subtree({"a": {"b": 1}, "c": 2}, ("a",), {"b": 3})
    FrozenDict({
        a: {
            b: 3,
        },
        c: 2,
    })
    """
    if not path:
        return freeze(unfreeze(new))
    name, *rest = path
    part = with_subtree(tree.get(name, {}), tuple(rest), new)
    return freeze({**unfreeze(tree), name: part})


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which variables to keep.

    Attributes:
      whole: Modules of which everything is kept.
      own: Modules of which only their own variables are kept.
    """

    whole: frozenset[Path] = frozenset({()})
    own: frozenset[Path] = frozenset()

    def prune(self, tree: Any, path: Path = ()) -> Any:
        """Return the selected part of a nested dict."""
        if any(path[: len(kept)] == kept for kept in self.whole):
            return tree
        kept = {}
        for name, value in tree.items():
            if isinstance(value, Mapping):
                part = self.prune(value, (*path, name))
                if part:
                    kept[name] = part
            elif path in self.own:
                kept[name] = value
        return FrozenDict(kept)


EVERYTHING = Selection()


def check_same_structure(current: Any, new: Any, where: str) -> None:
    """Raise `ValueError` that lists missing and unexpected paths."""
    if not isinstance(new, Mapping):
        raise ValueError(
            f"{where} takes a dict, not {type(new).__name__}: {new!r:.80}."
        )
    have, want = _leaf_paths(new), _leaf_paths(current)
    missing, unexpected = want - have, have - want
    if missing or unexpected:
        raise ValueError(
            f"{where} takes a tree like the one it replaces."
            + _listing("Missing", missing)
            + _listing("Unexpected", unexpected)
        )
    old_def, new_def = (jax.tree.structure(freeze(tree)) for tree in (current, new))
    if old_def != new_def:
        raise ValueError(
            f"{where} takes a tree like the one it replaces. The names are the same, but "
            f"what they hold differs (boxes such as `nn.Partitioned`, or `None`): "
            f"{new_def} instead of {old_def}."
        )


def _leaf_paths(tree: Mapping[str, Any]) -> set[str]:
    return set(traverse_util.flatten_dict(unfreeze(tree), sep="/"))


def _listing(title: str, paths: Iterable[str]) -> str:
    names = sorted(paths)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f" {title}: {', '.join(names[:10])}{more}." if names else ""


#
# Random keys and integers as floating-point numbers
#
# `jax.grad` accepts only floating-point leaves, and optimizers compute with every leaf.
# A model goes through both with its keys in it. So whatever is not a floating-point
# array is exposed as its bytes, one float32 each: values from 0 to 255 are exact in
# every float dtype, their gradient is zero, and every value is a valid key.
#


@dataclasses.dataclass(frozen=True)
class Form:
    """The array that a coded leaf stands for.

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
      forms: and the arrays that its leaves stand for, in order.
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
        """Return the tree as users see it."""
        if self._values is not _ABSENT:
            return self._values
        values = self._convert(_decode, self._codes)
        if _is_concrete(self._codes):  # a traced value must not outlive its trace
            self._values = values
        return values

    def codes(self) -> Any:
        """Return the tree with floating-point leaves only."""
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
        convert = functools.partial(_convert_leaf, fn)
        return treedef.unflatten(map(convert, leaves, self.forms))

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


def _convert_leaf(fn: Callable[..., Any], leaf: Any, form: Form) -> Any:
    if form == PLAIN:
        return leaf
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.eval_shape(functools.partial(fn, form=form), leaf)
    if isinstance(leaf, jax.core.Tracer):
        return fn(leaf, form=form)
    with jax.ensure_compile_time_eval():  # stays concrete inside a trace
        return fn(leaf, form=form)


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
