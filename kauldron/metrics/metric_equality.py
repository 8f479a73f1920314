"""When two metrics count as the same: equal options, whatever their keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from kauldron import kontext


def is_same_metric(left: Any, right: Any) -> bool:
    """Whether states of the two may be merged: same class, equal options.

    Keys say where inputs come from, not what is computed, and are not compared.
    """
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if not dataclasses.is_dataclass(left):
        return is_equal(left, right)
    keys = kontext.type_utils.get_annotated(type(left), kontext.Key)
    return all(
        _is_same_option(getattr(left, field.name), getattr(right, field.name))
        for field in dataclasses.fields(left)
        if field.compare and field.name not in keys
    )


def _is_same_option(left: Any, right: Any) -> bool:
    """Like `is_equal`, but metrics inside (of wrappers) may differ in their keys."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            _is_same_option(left[name], right[name]) for name in left
        )
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_is_same_option, left, right))
    if hasattr(left, "get_state_from_context"):
        return is_same_metric(left, right)
    return is_equal(left, right)


def is_equal(left: Any, right: Any) -> bool:
    """`left == right` as one bool, for arrays too; tracers equal only themselves."""
    if left is right:
        return True
    if isinstance(left, jax.core.Tracer) or isinstance(right, jax.core.Tracer):
        return False
    if isinstance(left, np.ndarray | jax.Array) or isinstance(
        right, np.ndarray | jax.Array
    ):
        return np.array_equal(left, right)
    return bool(left == right)
