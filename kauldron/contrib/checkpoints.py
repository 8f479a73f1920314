"""Another name of `kauldron.contrib.ckpts`."""

import sys

from kauldron.contrib import ckpts

sys.modules[__name__] = ckpts
