"""Random keys as objects: `key.split()`, `key.uniform((2,))`, `key.fold_in("name")`.

Every other public function of `jax.random` is here too, and takes either kind of key:
`kd.random.normal(key, (3,))`.
"""

from kauldron.random import key_functions
from kauldron.random.key_functions import fold_in_str as fold_in_str
from kauldron.random.key_functions import random_seed as random_seed
from kauldron.random.prng_key import PRNGKey as PRNGKey

__getattr__ = key_functions.mirrored_function
__dir__ = key_functions.list_names
