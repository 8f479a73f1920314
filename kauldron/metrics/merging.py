"""Merging whole trees of states over many batches, without waiting for the device."""

from __future__ import annotations

from typing import Any

import jax

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
    traceable = [_merges_in_jit(a, b) for a, b in zip(lefts, rights)]
    on_device = iter(_merge_on_device(lefts, rights, traceable))
    return structure.unflatten(
        next(on_device) if is_traceable else a.merge(b)
        for a, b, is_traceable in zip(lefts, rights, traceable)
    )


def _merge_on_device(
    lefts: list[State], rights: list[State], traceable: list[bool]
) -> list[State]:
    """Merge the states marked as traceable in one call."""
    if not any(traceable):
        return []
    chosen = [(a, b) for a, b, yes in zip(lefts, rights, traceable) if yes]
    try:
        return _merge_pairs(chosen)
    except Exception:  # merging one by one works, or shows which state is to blame
        return [a.merge(b) for a, b in chosen]


@jax.jit
def _merge_pairs(pairs: list[tuple[State, State]]) -> list[State]:
    return [a.merge(b) for a, b in pairs]


_traceable_kinds: dict[Any, bool] = {}


def _merges_in_jit(left: State, right: State) -> bool:
    """Whether such states merge inside `jit`; found out once per kind of state."""
    if has_no_data(left) or has_no_data(right):
        return False  # nothing to add up, and nothing to learn about the kind
    kind = (type(left), type(right), left.parent)
    try:
        if kind not in _traceable_kinds:
            _traceable_kinds[kind] = _can_be_traced(left, right)
        return _traceable_kinds[kind]
    except TypeError:  # a metric without a hash
        return False


def _can_be_traced(left: State, right: State) -> bool:
    try:
        jax.eval_shape(lambda a, b: a.merge(b), left, right)
    except Exception:  # the merge on the host shows what is really wrong
        return False
    return True
