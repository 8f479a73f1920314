"""Options of metrics, made hashable."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from kauldron.konfig.immutabledict import ImmutableDict

NOT_FROZEN = {"kauldron_not_frozen": True}
"""Metadata of a field that takes care of its own hash."""


def freeze_options(metric: Any) -> None:
    """Turn lists, dicts, sets and arrays among the fields into immutable ones.

    Metrics travel as static data through `jit` and must have a hash, also those built
    by hand with `columns=["a", "b"]`.
    """
    if not dataclasses.is_dataclass(metric):
        return
    for field in dataclasses.fields(metric):
        if field.metadata.keys() & NOT_FROZEN.keys() or not hasattr(metric, field.name):
            continue
        value = getattr(metric, field.name)
        frozen = freeze(value)
        if frozen is not value:
            object.__setattr__(metric, field.name, frozen)


def freeze(value: Any) -> Any:
    """Hashable form: list to tuple, dict to `ImmutableDict`, array to nested tuple."""
    if isinstance(value, jax.core.Tracer):
        return value
    if isinstance(value, np.ndarray | jax.Array):
        return freeze(np.asarray(value).tolist())
    if isinstance(value, Mapping):
        return ImmutableDict({name: freeze(item) for name, item in value.items()})
    if isinstance(value, list) or type(value) is tuple:
        return tuple(freeze(item) for item in value)
    if isinstance(value, set):
        return frozenset(freeze(item) for item in value)
    return value
