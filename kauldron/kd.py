"""The public namespace: `from kauldron import kd`.

Everything here is imported when it is first touched, so that importing `kd` costs
little and touches neither jax nor a device.
"""

from __future__ import annotations

import kauldron.nn  # noqa: F401, from here on flax takes `is_training_property=`
from kauldron.lazy_namespace import lazy_imports
from kauldron.status import quieten_libraries

with lazy_imports(__name__):
    from kauldron import ckpts as ckpts
    from kauldron import cli as cli
    from kauldron import contrib as contrib
    from kauldron import data as data
    from kauldron import evals as evals
    from kauldron import export as export
    from kauldron import from_workdir as from_workdir
    from kauldron import from_xid as from_xid
    from kauldron import inspect as inspect
    from kauldron import klinen as klinen
    from kauldron import konfig as konfig
    from kauldron import kontext as kontext
    from kauldron import ktyping as ktyping
    from kauldron import kxm as kxm
    from kauldron import kxm as xm  # noqa: F401
    from kauldron import losses as losses
    from kauldron import metrics as metrics
    from kauldron import nn as nn
    from kauldron import optim as optim
    from kauldron import random as random
    from kauldron import sharding as sharding
    from kauldron import summaries as summaries
    from kauldron import testing as testing
    from kauldron import train as train
    from kauldron import typing as typing
    from kauldron import utils as utils

quieten_libraries()
