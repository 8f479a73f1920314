"""One optimizer for each loss."""

import jax
import jax.numpy as jnp
import optax
import pytest

from kauldron import kd

PARAMS = {"generator": jnp.ones(2), "discriminator": jnp.ones(3)}


def gan_optimizer():
    return kd.contrib.train.multi_optimizer(
        generator=kd.optim.partial_update(
            optimizer=optax.adam(1e-3), mask=kd.optim.select("generator")
        ),
        discriminator=kd.optim.partial_update(
            optimizer=optax.adam(1e-4), mask=kd.optim.select("discriminator")
        ),
    )


def test_state_is_a_dict_from_loss_to_state():
    state = gan_optimizer().init(PARAMS)
    assert type(state) is dict
    assert list(state) == ["generator", "discriminator"]
    adam = state["generator"].inner_states["train"].inner_state[0]
    assert jax.tree.leaves(adam.mu["discriminator"]) == []


def test_optimizers_are_readable_and_usable_on_their_own():
    optimizer = gan_optimizer()
    assert list(optimizer.loss_to_optimizer) == ["generator", "discriminator"]
    state = optimizer.init(PARAMS)
    part = optimizer.loss_to_optimizer["generator"]
    updates, new_state = part.update(PARAMS, state["generator"], PARAMS)
    assert updates["discriminator"].tolist() == [0.0, 0.0, 0.0]
    assert jax.tree.structure(new_state) == jax.tree.structure(state["generator"])


def test_it_is_an_optax_transformation():
    assert isinstance(gan_optimizer(), optax.GradientTransformation)


def test_initialises_under_jit():
    state = jax.jit(gan_optimizer().init)(PARAMS)
    assert jax.tree.structure(state) == jax.tree.structure(gan_optimizer().init(PARAMS))


@pytest.mark.parametrize("args", [(), ({}, {}), (PARAMS, None, PARAMS)])
def test_update_points_to_the_train_step(args):
    with pytest.raises(TypeError, match="MultiTrainStep"):
        gan_optimizer().update(*args)


def test_no_optimizer():
    with pytest.raises(ValueError, match="at least one"):
        kd.contrib.train.multi_optimizer()
