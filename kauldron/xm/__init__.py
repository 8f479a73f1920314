"""Another name of `kauldron.kxm`, with the launcher as a program and its configs."""

from kauldron.kxm import __dir__ as __dir__
from kauldron.kxm import __getattr__ as __getattr__
