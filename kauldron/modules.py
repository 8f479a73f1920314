"""Another name of `kauldron.nn`."""

import sys

from kauldron import nn

sys.modules[__name__] = nn
