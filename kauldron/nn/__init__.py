"""Flax modules that know their mode, and the pieces to write your own.

Members are imported when they are first used: `import kauldron.nn` loads neither jax
nor flax. Once flax is loaded, its modules take `is_training_property=`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace
from kauldron.nn import compat as compat
from kauldron.nn import flax_hook

if TYPE_CHECKING:
    from kauldron.nn.layers import Dropout as Dropout
    from kauldron.nn.layers import Identity as Identity
    from kauldron.nn.layers import Rearrange as Rearrange
    from kauldron.nn.layers import Reduce as Reduce
    from kauldron.nn.layers import Sequential as Sequential
    from kauldron.nn.models import DummyModel as DummyModel
    from kauldron.nn.models import FlatAutoencoder as FlatAutoencoder
    from kauldron.nn.properties import interms_property as interms_property
    from kauldron.nn.properties import set_train_property as set_train_property
    from kauldron.nn.properties import train_property as train_property

_MEMBERS = {
    "train_property": "properties:train_property",
    "set_train_property": "properties:set_train_property",
    "interms_property": "properties:interms_property",
    "Dropout": "layers:Dropout",
    "Identity": "layers:Identity",
    "Rearrange": "layers:Rearrange",
    "Reduce": "layers:Reduce",
    "Sequential": "layers:Sequential",
    "FlatAutoencoder": "models:FlatAutoencoder",
    "DummyModel": "models:DummyModel",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{where}" for name, where in _MEMBERS.items()}
)

flax_hook.install()
