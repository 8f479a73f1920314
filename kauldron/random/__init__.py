"""Random keys as objects: `key.split()`, `key.uniform((2,))`, `key.fold_in("name")`.

Every other public function of `jax.random` is here too, and takes either kind of key:
`kd.random.normal(key, (3,))`.
"""

from kauldron.random import prng_key as _prng_key
from kauldron.random.prng_key import PRNGKey as PRNGKey
from kauldron.random.prng_key import fold_in_str as fold_in_str
from kauldron.random.prng_key import random_seed as random_seed

__getattr__ = _prng_key.mirrored_function
__dir__ = _prng_key.list_names
