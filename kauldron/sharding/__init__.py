"""Where arrays live when there are several devices.

Members are imported when they are first used, and the constants are made then: neither
importing this package nor `kd` starts a JAX backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace
from kauldron.sharding import compat as compat

if TYPE_CHECKING:
    from kauldron.sharding.device_mesh import DEVICES_MESH as DEVICES_MESH
    from kauldron.sharding.device_mesh import FIRST_DIM as FIRST_DIM
    from kauldron.sharding.device_mesh import REPLICATED as REPLICATED
    from kauldron.sharding.placement import device_put as device_put
    from kauldron.sharding.placement import (
        local_to_global_shape as local_to_global_shape,
    )
    from kauldron.sharding.strategy import FSDPSharding as FSDPSharding
    from kauldron.sharding.strategy import ShardingStrategy as ShardingStrategy
    from kauldron.sharding.tree import ShardingTree as ShardingTree
    from kauldron.sharding.tree import (
        eval_shape_with_sharding as eval_shape_with_sharding,
    )
    from kauldron.sharding.tree import (
        replace_shape_dtype_struct as replace_shape_dtype_struct,
    )
    from kauldron.sharding.tree import (
        with_sharding_constraint as with_sharding_constraint,
    )

_MEMBERS = {
    "ShardingStrategy": "strategy",
    "FIRST_DIM": "device_mesh",
    "REPLICATED": "device_mesh",
    "DEVICES_MESH": "device_mesh",
    "FSDPSharding": "strategy",
    "ShardingTree": "tree",
    "device_put": "placement",
    "with_sharding_constraint": "tree",
    "local_to_global_shape": "placement",
    "replace_shape_dtype_struct": "tree",
    "eval_shape_with_sharding": "tree",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{file}:{name}" for name, file in _MEMBERS.items()}
)
