"""Useful extras, each imported when it is first used."""

from __future__ import annotations

from kauldron.contrib import compat as compat
from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    from kauldron.contrib import ckpts as checkpoints  # noqa: F401
    from kauldron.contrib import ckpts as ckpts
    from kauldron.contrib import data as data
    from kauldron.contrib import evals as evals
    from kauldron.contrib import losses as losses
    from kauldron.contrib import metrics as metrics
    from kauldron.contrib import nn as nn
    from kauldron.contrib import summaries as summaries
    from kauldron.contrib import train as train
