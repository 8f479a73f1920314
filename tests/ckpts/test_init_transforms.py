"""Changing the initial state."""

import dataclasses
import pickle

import jax.numpy as jnp
import pytest

from kauldron import kd, konfig
from tests.train.toy import make_trainer


@dataclasses.dataclass(frozen=True)
class Scale(kd.ckpts.InitTransform):
    """Adds, then multiplies: order shows."""

    plus: float = 0.0
    times: float = 1.0

    def transform(self, state):
        bias = (state.params["dense"]["bias"] + self.plus) * self.times
        dense = {**state.params["dense"], "bias": bias}
        return state.replace(params={**state.params, "dense": dense})


class Failing(kd.ckpts.InitTransform):
    def transform(self, state):
        raise ValueError("out of coffee")


@dataclasses.dataclass(frozen=True)
class Widen(kd.ckpts.InitTransform):
    def transform(self, state):
        dense = {**state.params["dense"], "bias": jnp.zeros((7,), jnp.bfloat16)}
        return state.replace(params={"dense": dense, "more": jnp.zeros(1)})


def test_several_apply_in_order(tmp_path):
    transform = kd.ckpts.MultiTransform(first=Scale(plus=1.0), second=Scale(times=3.0))
    state = make_trainer(tmp_path, init_transform=transform).init_state()
    assert state.params["dense"]["bias"].tolist() == [3, 3]


def test_failing_one_is_named(tmp_path):
    transform = kd.ckpts.MultiTransform(fine=Scale(), bad=Failing())
    with pytest.raises(ValueError, match="Init transform 'bad': out of coffee"):
        make_trainer(tmp_path, init_transform=transform).init_state()


def test_several_are_a_value():
    def make(plus):
        return kd.ckpts.MultiTransform(a=Scale(plus=plus), b=kd.ckpts.NoopTransform())

    assert make(1.0) == make(1.0) != make(2.0)
    assert hash(make(1.0)) == hash(make(1.0))
    assert pickle.loads(pickle.dumps(make(1.0))) == make(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        make(1.0).transforms = {}


def test_several_come_from_configs():
    with konfig.imports():
        from kauldron import kd as kd_cfg
    cfg = kd_cfg.ckpts.MultiTransform(
        b=kd_cfg.ckpts.NoopTransform(), a=kd_cfg.ckpts.NoopTransform()
    )
    assert list(konfig.resolve(cfg).transforms) == ["b", "a"]


def test_none_is_the_transform_that_does_nothing(tmp_path):
    trainer = make_trainer(tmp_path, init_transform=None, checkpointer=None)
    assert trainer.init_transform == kd.ckpts.NoopTransform()
    assert trainer.checkpointer == kd.ckpts.NoopCheckpointer()
    state = trainer.init_state()
    assert trainer.init_transform.transform(state) is state


def test_shapes_and_names_must_stay(tmp_path):
    trainer = make_trainer(tmp_path, init_transform=Widen())
    with pytest.raises(ValueError) as error:
        trainer.init_state()
    message = str(error.value)
    assert "Widen may change values only" in message
    assert "params.dense.bias: float32(2,) to bfloat16(7,)" in message
    assert "params.more: nothing to float32(1,)" in message


def test_transforms_can_be_skipped_and_specs_do_not_need_them(tmp_path):
    trainer = make_trainer(tmp_path, init_transform=Failing())
    trainer.init_state(skip_transforms=True)
    assert trainer.state_specs.params["dense"]["bias"].shape == (2,)


def test_mistakes_of_loaders_are_found_without_their_source(tmp_path):
    def load(**kwargs):
        return kd.ckpts.PartialKauldronLoader(workdir="nowhere", **kwargs)

    transform = kd.ckpts.MultiTransform(
        fine=load(ignore_model_keys=("dense.bias",)),
        first=load(ignore_model_keys=("dens.**",)),
        second=load(new_to_old={"params.dens": "params"}),
    )
    trainer = make_trainer(tmp_path, init_transform=transform)
    found = kd.train.problems.find_with_state(trainer, trainer.state_specs)
    first, second = map(str, found)
    assert first.startswith("cfg.init_transform.first: `ignore_model_keys` has 'dens")
    assert second.startswith(
        "cfg.init_transform.second: `new_to_old` has 'params.dens'"
    )
    assert "Did you mean 'dense'" in first and "Did you mean 'dense'" in second
