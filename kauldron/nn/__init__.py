"""Flax modules that know their mode, and the pieces to write your own.

Members are imported when they are first used: `import kauldron.nn` loads neither jax
nor flax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.nn.dropout import Dropout as Dropout
    from kauldron.nn.intermediates import interms_property as interms_property
    from kauldron.nn.training_mode import set_train_property as set_train_property
    from kauldron.nn.training_mode import train_property as train_property

_MEMBERS = {
    "train_property": "training_mode:train_property",
    "set_train_property": "training_mode:set_train_property",
    "interms_property": "intermediates:interms_property",
    "Dropout": "dropout:Dropout",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{where}" for name, where in _MEMBERS.items()}
)
