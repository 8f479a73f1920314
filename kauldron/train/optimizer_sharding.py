"""Where the state of an optimizer lives, when only the parameters were told."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from kauldron.sharding.tree import ShardingTree, flatten_with_shardings


def follow_params(
    opt_state: Any, params: Any, shardings: ShardingTree, *, default: Any
) -> ShardingTree:
    """The sharding tree of an optimizer state whose moments live with their parameters.

    Initial moments are constants, which XLA would put on every device as a whole; and a
    state that moves after the first step would be compiled for twice.

    Args:
      opt_state: The state. What is called and shaped like a parameter, below whatever
        the optimizer puts around it, belongs to that parameter.
      params: The parameters.
      shardings: The sharding tree of the parameters.
      default: The sharding of what belongs to no parameter, such as a count of steps.

    Returns:
      A sharding for each array.
    """
    of_param = {
        (_names(leaf.path), np.shape(leaf.value)): leaf.sharding
        for leaf in flatten_with_shardings(params, shardings)
    }

    def find(path: Any, value: Any) -> Any:
        names, shape = _names(path), np.shape(value)
        suffixes = (names[start:] for start in range(len(names)))
        owners = (of_param[s, shape] for s in suffixes if (s, shape) in of_param)
        return next(owners, default)

    return jax.tree_util.tree_map_with_path(find, opt_state)


def _names(path: Any) -> tuple[str, ...]:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
