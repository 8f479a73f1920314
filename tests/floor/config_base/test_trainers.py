"""What the parts of a real trainer inherit from it."""

import dataclasses

import numpy as np

from kauldron import config_base, data, evals, kd, train


def _pipeline():
    return data.InMemoryPipeline(loader=lambda: {"x": np.ones(8)}, batch_size=4)


def make_trainer(**kwargs):
    return train.Trainer(**{"train_ds": _pipeline()} | kwargs)


def test_inherited_seed_follows_and_explicit_seed_stays():
    explicit = dataclasses.replace(_pipeline(), seed=100)
    trainer = make_trainer(
        seed=3,
        eval_ds=explicit,
        evals={
            "inherits": evals.Evaluator(run=evals.EveryNSteps(1), ds=_pipeline()),
            "explicit": evals.Evaluator(run=evals.EveryNSteps(1)),
        },
    )
    other = trainer.replace(seed=4)
    assert (trainer.train_ds.seed, other.train_ds.seed) == (3, 4)
    assert (trainer.rng_streams.seed, other.rng_streams.seed) == (3, 4)
    assert other.evals["inherits"].ds.seed == 4
    assert other.eval_ds.seed == other.evals["explicit"].ds.seed == 100
    replaced = trainer.replace(train_ds=dataclasses.replace(trainer.train_ds, seed=7))
    assert replaced.replace(seed=5).train_ds.seed == 7


def test_evaluator_measures_what_the_trainer_measures():
    trainer = make_trainer(
        eval_ds=_pipeline(),
        train_losses={"l2": kd.losses.L2(preds="preds", targets="batch.x")},
        evals={"e": evals.Evaluator(run=evals.EveryNSteps(1))},
    )
    evaluator = trainer.evals["e"]
    assert evaluator.losses == trainer.train_losses
    assert evaluator.metrics == trainer.train_metrics
    assert evaluator.summaries == trainer.train_summaries
    assert evaluator.base_cfg is trainer
    other = trainer.replace(train_losses={})
    assert other.evals["e"].losses == {}
    assert other.evals["e"].base_cfg is other


def test_field_added_by_a_subclass_of_the_trainer_is_filled():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Saver(config_base.UpdateFromRootCfg):
        seed: int = config_base.ROOT_CFG_REF.seed

    class MyTrainer(train.Trainer):
        saver: Saver = dataclasses.field(default_factory=Saver)

    assert MyTrainer(seed=3).saver.seed == 3
    assert MyTrainer(seed=3).replace(seed=4).saver.seed == 4
