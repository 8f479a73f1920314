"""Another name of `kauldron.ckpts`."""

import sys

from kauldron import ckpts

sys.modules[__name__] = ckpts
