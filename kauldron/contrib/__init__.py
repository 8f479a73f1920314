"""Useful extras, each imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.contrib import compat as compat
from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.contrib import ckpts as checkpoints  # noqa: F401
    from kauldron.contrib import ckpts as ckpts
    from kauldron.contrib import data as data
    from kauldron.contrib import evals as evals
    from kauldron.contrib import losses as losses
    from kauldron.contrib import metrics as metrics
    from kauldron.contrib import summaries as summaries
    from kauldron.contrib import train as train

_PACKAGES = (
    "checkpoints",
    "ckpts",
    "data",
    "evals",
    "losses",
    "metrics",
    "summaries",
    "train",
)

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{name}" for name in _PACKAGES}
)
