"""Flax modules that know their mode, and the pieces to write your own.

Members are imported when they are first used: `import kauldron.nn` loads neither jax
nor flax. Once flax is loaded, its modules take `is_training_property=`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace
from kauldron.nn import flax_hook

if TYPE_CHECKING:
    from kauldron.nn.dropout import Dropout as Dropout
    from kauldron.nn.dummy_model import DummyModel as DummyModel
    from kauldron.nn.einops_layers import Rearrange as Rearrange
    from kauldron.nn.einops_layers import Reduce as Reduce
    from kauldron.nn.flat_autoencoder import FlatAutoencoder as FlatAutoencoder
    from kauldron.nn.identity import Identity as Identity
    from kauldron.nn.intermediates import interms_property as interms_property
    from kauldron.nn.sequential import Sequential as Sequential
    from kauldron.nn.training_mode import set_train_property as set_train_property
    from kauldron.nn.training_mode import train_property as train_property

_MEMBERS = {
    "train_property": "training_mode:train_property",
    "set_train_property": "training_mode:set_train_property",
    "interms_property": "intermediates:interms_property",
    "Dropout": "dropout:Dropout",
    "Identity": "identity:Identity",
    "Rearrange": "einops_layers:Rearrange",
    "Reduce": "einops_layers:Reduce",
    "Sequential": "sequential:Sequential",
    "FlatAutoencoder": "flat_autoencoder:FlatAutoencoder",
    "DummyModel": "dummy_model:DummyModel",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{where}" for name, where in _MEMBERS.items()}
)

flax_hook.install()
