"""Training experiments in JAX: configs as data, parts that find each other by name.

The public namespace is `kd`:

    from kauldron import kd, konfig, kontext
"""

from kauldron import compat as compat

__version__ = "0.1.0"
