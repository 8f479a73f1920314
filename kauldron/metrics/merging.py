"""Merging whole trees of states over many batches, without waiting for the device."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp

from kauldron.metrics.state import State, has_no_data


def merge_states(left: Any, right: Any) -> Any:
    """Merge two trees of states, state by state.

    States that can be merged inside `jit` are merged by one compiled call; those that
    collect on the host keep references to the arrays, whose copy starts in the
    background. Nothing waits for the device.

    Args:
      left: A tree of states, such as a dict; or `None`.
      right: Another one of the same structure; or `None`.

    Returns:
      The merged tree.

    Example:
      >>> import jax.numpy as jnp
      >>> from kauldron import metrics
      >>> accuracy = metrics.Accuracy()
      >>> merged = None
      >>> for label in (0, 1, 1):
      ...     logits, labels = jnp.array([[0.0, 1.0]]), jnp.array([[label]])
      ...     state = accuracy.get_state(logits=logits, labels=labels)
      ...     merged = merge_states(merged, {"accuracy": state})
      >>> round(float(merged["accuracy"].compute()), 3)
      0.667
    """
    if left is None or right is None:
        return right if left is None else left
    lefts, structure = jax.tree.flatten(left, is_leaf=State.isinstance)
    rights, other_structure = jax.tree.flatten(right, is_leaf=State.isinstance)
    if structure != other_structure:
        raise ValueError(
            "Cannot merge trees of states of different structure:"
            f" {structure} and {other_structure}."
        )
    pairs = list(zip(lefts, rights))
    on_device = [_kind_merges_on_device(a, b) for a, b in pairs]
    merged = iter(_merge_on_device(list(itertools.compress(pairs, on_device))))
    return structure.unflatten(
        next(merged) if is_on_device else a.merge(b)
        for (a, b), is_on_device in zip(pairs, on_device)
    )


def merges_on_device(left: State, right: State) -> bool:
    """Whether such states merge inside `jit`, to something of the same shapes.

    What grows by merging would be compiled anew for each batch. Dtypes may change once:
    adding truth values gives a number.
    """
    try:
        once = jax.eval_shape(_merge, left, right)
        twice = jax.eval_shape(_merge, once, right)
    except Exception:  # the merge on the host shows what is really wrong
        return False
    return _shapes(left) == _shapes(once) and _dtypes(once) == _dtypes(twice)


def _merge(left: State, right: State) -> State:
    return left.merge(right)


def _shapes(state: State) -> Any:
    leaves, structure = jax.tree.flatten(state)
    return structure, [jnp.shape(leaf) for leaf in leaves]


def _dtypes(state: State) -> list[Any]:
    return [leaf.dtype for leaf in jax.tree.leaves(state)]


_kinds_on_device: dict[Any, bool] = {}


def _kind_merges_on_device(left: State, right: State) -> bool:
    """`merges_on_device`, found out once per kind of state."""
    if has_no_data(left) or has_no_data(right):
        return False  # nothing to add up, and nothing to learn about the kind
    kind = (type(left), type(right), left.parent)
    try:
        if kind not in _kinds_on_device:
            _kinds_on_device[kind] = merges_on_device(left, right)
        return _kinds_on_device[kind]
    except TypeError:  # a metric without a hash
        return False


def _merge_on_device(pairs: list[tuple[State, State]]) -> list[State]:
    """Merge pairs of states in one call."""
    if not pairs:
        return []
    try:
        return _merge_pairs(pairs)
    except Exception:  # merging one by one works, or shows which state is to blame
        return [a.merge(b) for a, b in pairs]


@jax.jit
def _merge_pairs(pairs: list[tuple[State, State]]) -> list[State]:
    return [a.merge(b) for a, b in pairs]
