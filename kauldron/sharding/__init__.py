"""Where arrays live when there are several devices.

Members are imported when they are first used, and the constants are made then: neither
importing this package nor `kd` starts a JAX backend.
"""

from __future__ import annotations

from kauldron.lazy_namespace import lazy_imports
from kauldron.sharding import compat as compat

with lazy_imports(__name__):
    from kauldron.sharding.device_mesh import DEVICES_MESH as DEVICES_MESH
    from kauldron.sharding.device_mesh import FIRST_DIM as FIRST_DIM
    from kauldron.sharding.device_mesh import REPLICATED as REPLICATED
    from kauldron.sharding.strategy import FSDPSharding as FSDPSharding
    from kauldron.sharding.strategy import ShardingStrategy as ShardingStrategy
    from kauldron.sharding.tree import ShardingTree as ShardingTree
    from kauldron.sharding.tree import device_put as device_put
    from kauldron.sharding.tree import (
        eval_shape_with_sharding as eval_shape_with_sharding,
    )
    from kauldron.sharding.tree import (
        local_to_global_shape as local_to_global_shape,
    )
    from kauldron.sharding.tree import (
        replace_shape_dtype_struct as replace_shape_dtype_struct,
    )
    from kauldron.sharding.tree import (
        with_sharding_constraint as with_sharding_constraint,
    )
