"""Other ways to evaluate; imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.contrib.evals.checkpointed_evaluator import (
        CheckpointedEvaluator as CheckpointedEvaluator,
    )
    from kauldron.contrib.evals.train_evaluator import TrainEvaluator as TrainEvaluator
    from kauldron.contrib.evals.train_evaluator import (
        default_stop_after_steps_schedule_fn as default_stop_after_steps_schedule_fn,
    )
    from kauldron.contrib.evals.train_evaluator import (
        linear_stop_after_steps_schedule_fn as linear_stop_after_steps_schedule_fn,
    )

_MEMBERS = {
    "TrainEvaluator": "train_evaluator",
    "default_stop_after_steps_schedule_fn": "train_evaluator",
    "linear_stop_after_steps_schedule_fn": "train_evaluator",
    "CheckpointedEvaluator": "checkpointed_evaluator",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{file}:{name}" for name, file in _MEMBERS.items()}
)
