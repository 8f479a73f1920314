"""A step that does nothing."""

from kauldron import kd
from tests.train.toy import make_trainer


def test_steps_are_counted_and_nothing_is_computed(tmp_path):
    trainer = make_trainer(
        tmp_path, trainstep=kd.contrib.train.NoopTrainStep(), num_train_steps=7
    )
    state, aux = trainer.train()
    assert int(state.step) == 7
    assert state.params == state.collections == state.opt_state == {}
    assert aux.compute().loss_values == {}


def test_one_step_by_hand(tmp_path):
    trainer = make_trainer(tmp_path, trainstep=kd.contrib.train.NoopTrainStep())
    state = trainer.init_state()
    batch = next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))
    state, aux = trainer.trainstep.step(state, batch, return_losses=True)
    assert int(state.step) == 1
    assert aux.loss_states == {}
