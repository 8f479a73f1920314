"""What is measured on a model, and when. Naming a strategy imports no jax."""

from kauldron.evals import compat as compat
from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
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
