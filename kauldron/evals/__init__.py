"""What is measured on a model, and when. Naming a strategy imports no jax."""

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.evals.compat import CollectionKeys as CollectionKeys
    from kauldron.evals.compat import basic_eval_step as basic_eval_step
    from kauldron.evals.evaluator import Evaluator as Evaluator
    from kauldron.evals.evaluator_base import EvaluatorBase as EvaluatorBase
    from kauldron.evals.few_shot_evaluator import FewShotEvaluator as FewShotEvaluator
    from kauldron.evals.run_strategies import AlongTrain as AlongTrain
    from kauldron.evals.run_strategies import EveryNSteps as EveryNSteps
    from kauldron.evals.run_strategies import Final as Final
    from kauldron.evals.run_strategies import Once as Once
    from kauldron.evals.run_strategies import RunStrategy as RunStrategy
    from kauldron.evals.run_strategies import Standalone as Standalone
    from kauldron.evals.run_strategies import (
        StandaloneEveryCheckpoint as StandaloneEveryCheckpoint,
    )
    from kauldron.evals.run_strategies import (
        StandaloneLastCheckpoint as StandaloneLastCheckpoint,
    )

_MEMBERS = {
    "Evaluator": "evaluator:Evaluator",
    "EvaluatorBase": "evaluator_base:EvaluatorBase",
    "FewShotEvaluator": "few_shot_evaluator:FewShotEvaluator",
    "RunStrategy": "run_strategies:RunStrategy",
    "AlongTrain": "run_strategies:AlongTrain",
    "EveryNSteps": "run_strategies:EveryNSteps",
    "Once": "run_strategies:Once",
    "Final": "run_strategies:Final",
    "Standalone": "run_strategies:Standalone",
    "StandaloneEveryCheckpoint": "run_strategies:StandaloneEveryCheckpoint",
    "StandaloneLastCheckpoint": "run_strategies:StandaloneLastCheckpoint",
    "CollectionKeys": "compat:CollectionKeys",
    "basic_eval_step": "compat:basic_eval_step",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{where}" for name, where in _MEMBERS.items()}
)
