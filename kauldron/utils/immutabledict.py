"""Frozen dicts, as `konfig.resolve` makes them."""

from kauldron.konfig.immutabledict import ImmutableDict as ImmutableDict
from kauldron.konfig.immutabledict import freeze as freeze
from kauldron.konfig.immutabledict import freeze_dict_attrs as freeze_dict_attrs
from kauldron.konfig.immutabledict import unfreeze as unfreeze
