"""Other ways to evaluate; imported when first used."""

from __future__ import annotations

from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
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
