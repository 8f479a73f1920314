"""Deprecated name of `kauldron.konfig.immutabledict`."""

import warnings

from kauldron.konfig.immutabledict import ImmutableDict as ImmutableDict

warnings.warn(
    "Use kauldron.konfig.immutabledict instead.", DeprecationWarning, stacklevel=2
)
