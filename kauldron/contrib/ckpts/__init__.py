"""Preservation policies: which checkpoints are kept.

For `kd.ckpts.Checkpointer(preservation_policy=...)`. The newest checkpoint is kept
whatever a policy says.
"""

from __future__ import annotations

from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    from orbax.checkpoint.checkpoint_managers import (
        AnyPreservationPolicy as AnyPreservationPolicy,
    )
    from orbax.checkpoint.checkpoint_managers import BestN as BestN
    from orbax.checkpoint.checkpoint_managers import CustomSteps as CustomSteps
    from orbax.checkpoint.checkpoint_managers import EveryNSeconds as EveryNSeconds
    from orbax.checkpoint.checkpoint_managers import EveryNSteps as EveryNSteps
    from orbax.checkpoint.checkpoint_managers import LatestN as LatestN

    from kauldron.contrib.ckpts.policies import ExpStep as ExpStep
    from kauldron.contrib.ckpts.policies import keep_best_n as keep_best_n
    from kauldron.contrib.ckpts.policies import (
        keep_exp_step_and_best_n as keep_exp_step_and_best_n,
    )
