"""Optax transformations for experiments: masks by path, freezing, averages of weights.

Any optax transformation can be the optimizer of a trainer; these add what optax leaves
to the user. Members are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from optax import scale_by_learning_rate as scale_by_learning_rate

    from kauldron.optim.chains import named_chain as named_chain
    from kauldron.optim.freezing import partial_update as partial_update
    from kauldron.optim.freezing import partial_updates as partial_updates
    from kauldron.optim.init_decay import DecayToInitState as DecayToInitState
    from kauldron.optim.init_decay import decay_to_init as decay_to_init
    from kauldron.optim.parameter_average import EmaParamsState as EmaParamsState
    from kauldron.optim.parameter_average import ema_params as ema_params
    from kauldron.optim.path_masks import exclude as exclude
    from kauldron.optim.path_masks import select as select
    from kauldron.optim.use_ema_params import UseEmaParams as UseEmaParams

_MEMBERS = {
    "partial_updates": "freezing",
    "partial_update": "freezing",
    "select": "path_masks",
    "exclude": "path_masks",
    "named_chain": "chains",
    "decay_to_init": "init_decay",
    "DecayToInitState": "init_decay",
    "ema_params": "parameter_average",
    "EmaParamsState": "parameter_average",
    "UseEmaParams": "use_ema_params",
}

__getattr__, __dir__ = lazy_namespace(
    __name__,
    {name: f"{__name__}.{file}:{name}" for name, file in _MEMBERS.items()}
    | {"scale_by_learning_rate": "optax:scale_by_learning_rate"},
)
