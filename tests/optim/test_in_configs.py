"""Optimizers and schedules as values of a config."""

import json

import jax
import numpy as np
import optax
import pytest

from kauldron import kd, konfig
from tests.train.toy import make_trainer

with konfig.imports():
    import optax as optax_cfg

    from kauldron import kd as kd_cfg


def _config():
    cfg = konfig.ConfigDict({"num_train_steps": 10})
    cfg.schedules = {
        "learning_rate": optax_cfg.warmup_cosine_decay_schedule(
            init_value=0.0,
            peak_value=1.0,
            warmup_steps=2,
            decay_steps=cfg.ref.num_train_steps,
        )
    }
    cfg.optimizer = optax_cfg.sgd(learning_rate=cfg.ref.schedules["learning_rate"])
    return cfg


def _resolve(cfg):
    return konfig.resolve(konfig.ConfigDict(json.loads(cfg.to_json())))


def test_schedule_follows_the_number_of_steps():
    cfg = _config()
    schedule = jax.jit(_resolve(cfg).schedules["learning_rate"])
    assert float(schedule(10)) == pytest.approx(0.0)
    cfg.num_train_steps = 100
    longer = jax.jit(konfig.resolve(cfg).schedules["learning_rate"])
    assert float(longer(10)) > 0.9


def test_optimizer_follows_the_schedule_and_continues_after_a_restart():
    cfg = konfig.resolve(_config())
    schedule = jax.jit(cfg.schedules["learning_rate"])
    one = np.ones((), np.float32)
    update = jax.jit(lambda state: cfg.optimizer.update(one, state, one))

    def rates(state, num_steps):
        seen = []
        for _ in range(num_steps):
            value, state = update(state)
            seen.append(-float(value))
        return seen, state

    seen, state = rates(cfg.optimizer.init(one), 4)
    more, _ = rates(jax.device_get(state), 4)
    expected = [float(schedule(i)) for i in range(8)]
    np.testing.assert_allclose(seen + more, expected, rtol=1e-6)


def test_missing_argument_of_a_schedule_is_named_with_its_place():
    cfg = konfig.ConfigDict({"num_train_steps": 10})
    cfg.schedules = {
        "learning_rate": optax_cfg.warmup_cosine_decay_schedule(
            init_value=0.0, peak_value=1.0, decay_steps=cfg.ref.num_train_steps
        )
    }
    with pytest.raises(TypeError) as info:
        konfig.resolve(cfg)
    message = str(info.value)
    assert "warmup_steps" in message
    assert "warmup_cosine_decay_schedule" in message
    assert "cfg.schedules" in message


def test_masks_and_chains():
    cfg = kd_cfg.optim.partial_update(
        optimizer=kd_cfg.optim.named_chain(
            adam=optax_cfg.scale_by_adam(b1=0.5), lr=optax_cfg.scale(-0.1)
        ),
        mask=kd_cfg.optim.exclude(["bias", r"layers\.0"]),
    )
    assert cfg.optimizer.adam.b1 == 0.5
    ones = np.ones(2, np.float32)
    params = {"layers": [{"w": ones}, {"w": ones}], "bias": ones}
    optimizer = _resolve(cfg)
    update = jax.jit(lambda p: optimizer.update(p, optimizer.init(p), p)[0])
    assert jax.tree.map(np.any, jax.device_get(update(params))) == {
        "layers": [{"w": False}, {"w": True}],
        "bias": False,
    }


def test_mask_resolves_to_an_equal_value():
    assert _resolve(kd_cfg.optim.select("head")) == kd.optim.select("head")


def test_one_optimizer_per_loss():
    cfg = kd_cfg.contrib.train.multi_optimizer(
        discriminator=kd_cfg.optim.partial_update(
            optimizer=optax_cfg.adam(1e-3), mask=kd_cfg.optim.select("discriminator")
        ),
        generator=kd_cfg.optim.partial_update(
            optimizer=optax_cfg.adam(1e-3), mask=kd_cfg.optim.select("generator")
        ),
    )
    optimizer = _resolve(cfg)
    assert list(optimizer.loss_to_optimizer) == ["discriminator", "generator"]
    assert isinstance(optimizer, optax.GradientTransformation)


PARAMS = {"encoder": {"kernel": np.ones(2)}, "head": {"kernel": np.ones(2)}}
MASK = {"encoder": {"kernel": False}, "head": True}


def test_a_mask_of_partial_updates_may_be_a_dict():
    cfg = kd_cfg.optim.partial_updates(optax_cfg.sgd(1.0), mask=MASK)
    optimizer = konfig.resolve(cfg)
    updates, _ = optimizer.update(PARAMS, optimizer.init(PARAMS), PARAMS)
    assert not updates["encoder"]["kernel"].any()
    assert (updates["head"]["kernel"] == -1).all()


def test_a_dict_that_optax_cannot_match_is_explained(tmp_path):
    labels = {"dense": "a"}
    optimizer = konfig.resolve(
        optax_cfg.multi_transform({"a": optax_cfg.sgd(1.0)}, labels)
    )
    (problem,) = kd.train.problems.find_all(make_trainer(tmp_path, optimizer=optimizer))
    assert problem.path == "optimizer" and "kd.optim.select(" in problem.message
