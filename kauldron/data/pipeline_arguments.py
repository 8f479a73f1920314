"""Arguments that several kinds of pipeline take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron.utils.immutabledict import ImmutableDict


def frozen_transforms(transforms: Any) -> Any:
    """The transforms in containers that do not change and have a hash."""
    if isinstance(transforms, Mapping):
        return ImmutableDict(transforms)
    return tuple(transforms) if isinstance(transforms, list) else transforms


def check_device_resident(pipeline: Any) -> None:
    """`device_resident` is a bool or "auto"."""
    value = pipeline.device_resident
    if not isinstance(value, bool) and value != "auto":
        raise ValueError(
            f"{type(pipeline).__name__}(device_resident={value!r}): expected True, False"
            " or 'auto'."
        )


def check_num_epochs(pipeline: Any) -> None:
    """`num_epochs` is `None`, or an integer from 1 on."""
    epochs = pipeline.num_epochs
    if epochs is None:
        return
    is_integer = isinstance(epochs, int | np.integer) and not isinstance(epochs, bool)
    if not is_integer or epochs < 1:
        raise ValueError(
            f"{type(pipeline).__name__}(num_epochs={epochs!r}): expected an integer from"
            " 1 on, or None for endless data."
        )
