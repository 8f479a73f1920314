"""Optax transformations for experiments: masks by path, freezing, averages of weights.

Any optax transformation can be the optimizer of a trainer; these add what optax leaves
to the user. Members are imported when they are first used.
"""

from __future__ import annotations

from kauldron.lazy_namespace import lazy_imports
from kauldron.optim import compat as compat

with lazy_imports(__name__):
    from optax import scale_by_learning_rate as scale_by_learning_rate

    from kauldron.optim.masks import exclude as exclude
    from kauldron.optim.masks import select as select
    from kauldron.optim.transforms import DecayToInitState as DecayToInitState
    from kauldron.optim.transforms import EmaParamsState as EmaParamsState
    from kauldron.optim.transforms import decay_to_init as decay_to_init
    from kauldron.optim.transforms import ema_params as ema_params
    from kauldron.optim.transforms import named_chain as named_chain
    from kauldron.optim.transforms import partial_update as partial_update
    from kauldron.optim.transforms import partial_updates as partial_updates
    from kauldron.optim.use_ema_params import UseEmaParams as UseEmaParams
