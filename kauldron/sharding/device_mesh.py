"""One mesh axis over all devices, and the two shardings most programs need.

The constants of this module are made on first access, because they ask JAX for its
devices: a distributed program has to be initialised before.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from kauldron.lazy_namespace import missing_name

AXIS = "devices"

DEVICES_MESH: Mesh
FIRST_DIM: NamedSharding
REPLICATED: NamedSharding


@functools.cache
def _devices_mesh() -> Mesh:
    # The compiler propagates shardings along an Auto axis; along an Explicit one, the
    # default of newer mesh factories, the model's code would have to.
    devices = np.asarray(jax.devices())
    return Mesh(devices, (AXIS,), axis_types=(AxisType.Auto,))


_SPECS = {"FIRST_DIM": PartitionSpec(AXIS), "REPLICATED": PartitionSpec()}


@functools.cache
def __getattr__(name: str) -> Any:
    if name == "DEVICES_MESH":
        return _devices_mesh()
    if name in _SPECS:
        return NamedSharding(_devices_mesh(), _SPECS[name])
    raise missing_name(__name__, name, [*_SPECS, "DEVICES_MESH", *globals()])
