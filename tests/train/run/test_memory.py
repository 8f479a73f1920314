"""What a run held is given back when it is over."""

import gc
import weakref

import jax
import pytest

from kauldron import kd
from tests.train.toy import make_ds, make_trainer


def test_nothing_is_left_of_runs(tmp_path):
    gc.collect()
    arrays = len(jax.live_arrays())
    remains = []
    for steps_per_dispatch in (1, 4):
        trainer = make_trainer(
            tmp_path / str(steps_per_dispatch),
            train_ds=make_ds(device_resident=True),
            eval_ds=make_ds(num_epochs=1, shuffle=False),
            evals={"eval": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4))},
            checkpointer=kd.ckpts.Checkpointer(save_interval_steps=9),
            steps_per_dispatch=steps_per_dispatch,
            shares_step=False,
        )
        parts = [trainer, trainer.train_ds, trainer.trainstep, trainer.evals["eval"]]
        remains += [weakref.ref(part) for part in parts]
        trainer.train()
        del trainer, parts
    gc.collect()
    assert [ref() for ref in remains if ref() is not None] == []
    assert len(jax.live_arrays()) == arrays


def test_records_on_the_device_are_given_back_while_the_trainer_lives(tmp_path):
    ds = make_ds(device_resident=True)
    trainer = make_trainer(tmp_path, train_ds=ds, checkpointer=None)
    columns = []
    of = kd.data.DeviceRecords.of

    def remember(pipeline):
        records = of(pipeline)
        columns.extend(weakref.ref(leaf) for leaf in jax.tree.leaves(records.columns))
        return records

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kd.data.DeviceRecords, "of", remember)
        trainer.train()
    gc.collect()
    assert columns
    assert all(ref() is None for ref in columns)
    assert trainer.init_state() is not None


def test_a_copied_step_has_programs_of_its_own(tmp_path):
    trainer = make_trainer(tmp_path)
    batch = next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))
    trainer.trainstep.step(trainer.init_state(), batch)
    other = trainer.replace(
        train_losses={"l1": kd.losses.L1(preds="preds.y", targets="batch.y")}
    )
    _, aux = other.trainstep.step(other.init_state(), batch, return_losses=True)
    assert set(aux.loss_states) == {"l1"}


@pytest.mark.parametrize(
    ("free_memory", "device_resident"), [(True, True), (True, False), (False, False)]
)
def test_last_evaluators_may_free_the_programs_of_this_run_alone(
    tmp_path, free_memory, device_resident
):
    class Counting(kd.evals.EvaluatorBase):
        def evaluate(self, state, step):
            counts.append(_num_programs("jit_run_group"))

    traces = []

    @jax.jit
    def of_somebody_else(x):
        traces.append(x)
        return x + 1

    of_somebody_else(1)
    counts = [_num_programs("jit_run_group")]
    make_trainer(
        tmp_path,
        train_ds=make_ds(device_resident=device_resident),
        evals={"last": Counting(run=kd.evals.Final(free_memory=free_memory))},
        checkpointer=None,
        steps_per_dispatch=4,
        shares_step=False,
    ).train()
    of_somebody_else(1)
    assert len(traces) == 1
    assert counts[1] - counts[0] == (0 if free_memory else 1)


def _num_programs(name):
    gc.collect()
    loaded = jax.devices()[0].client.live_executables()
    names = [module.name for program in loaded for module in program.hlo_modules()]
    return names.count(name)
