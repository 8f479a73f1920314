"""The average of the parameters in their place."""

import os
import subprocess
import sys
import textwrap

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import kd
from kauldron.ckpts import InitTransform
from tests import processes


@flax.struct.dataclass
class State:
    """What `UseEmaParams` needs of a train state."""

    params: object
    opt_state: object


def params():
    return {"a": {"w": np.zeros(2, np.float32)}, "b": np.zeros(3, jnp.bfloat16)}


def trained(optimizer):
    """A state after one step by 1, so that averages differ from the parameters."""

    @jax.jit
    def step(before):
        grads = jax.tree.map(lambda x: -jnp.ones_like(x), before)
        updates, opt_state = optimizer.update(grads, optimizer.init(before), before)
        return State(optax.apply_updates(before, updates), opt_state)

    return step(params())


def ema(decay=0.75):
    return kd.optim.ema_params(decay=decay, debias=False)


NESTED = {
    "alone": lambda: optax.chain(optax.sgd(1.0), ema()),
    "named": lambda: kd.optim.named_chain(sgd=optax.sgd(1.0), average=ema()),
    "masked": lambda: kd.optim.partial_updates(
        optax.chain(optax.sgd(1.0), ema()), kd.optim.exclude("nothing")
    ),
    "deep": lambda: optax.apply_if_finite(
        optax.chain(optax.chain(optax.sgd(1.0), ema())), 3
    ),
}


@pytest.mark.parametrize("optimizer", NESTED.values(), ids=list(NESTED))
def test_unique_average_is_found(optimizer):
    state = trained(optimizer())
    out = kd.optim.UseEmaParams().transform(state)
    assert out.params["a"]["w"].tolist() == [0.25, 0.25]
    assert out.params["b"].tolist() == [0.25, 0.25, 0.25]
    assert out.params["b"].dtype == jnp.bfloat16
    assert state.params["a"]["w"].tolist() == [1.0, 1.0]
    assert out.opt_state is state.opt_state


def test_average_is_an_init_transform():
    assert isinstance(kd.optim.UseEmaParams(), InitTransform)
    assert kd.optim.UseEmaParams() == kd.optim.UseEmaParams()


def test_no_average():
    with pytest.raises(ValueError, match=r"no EmaParamsState found.*ema_params\("):
        kd.optim.UseEmaParams().transform(trained(optax.sgd(1.0)))


def test_state_without_optimizer_state():
    with pytest.raises(ValueError, match=r"no EmaParamsState found.*discard_opt"):
        kd.optim.UseEmaParams().transform(State(params(), None))


@pytest.fixture(scope="module")
def two_averages():
    """A state with two averages."""
    return trained(
        kd.optim.named_chain(sgd=optax.sgd(1.0), slow=ema(0.75), fast=ema(0.5))
    )


def test_several_averages_are_listed(two_averages):
    with pytest.raises(ValueError, match="slow, fast"):
        kd.optim.UseEmaParams().transform(two_averages)


def test_average_chosen_by_path(two_averages):
    transform = kd.optim.UseEmaParams(ema_params_transform="fast")
    assert transform.transform(two_averages).params["a"]["w"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("path", ["sgd", "missing"])
def test_path_without_average(two_averages, path):
    transform = kd.optim.UseEmaParams(ema_params_transform=path)
    with pytest.raises(ValueError, match=f"'{path}'.*slow, fast"):
        transform.transform(two_averages)


@pytest.mark.parametrize("mask", [kd.optim.select("b"), {"a": False, "b": True}])
def test_frozen_parameters_need_partial_ok(mask):
    optimizer = kd.optim.partial_updates(optax.chain(optax.sgd(1.0), ema()), mask)
    state = trained(optimizer)
    with pytest.raises(KeyError, match=r"a\.w.*partial_ok=True"):
        kd.optim.UseEmaParams().transform(state)
    out = kd.optim.UseEmaParams(partial_ok=True).transform(state)
    assert out.params["a"]["w"] is state.params["a"]["w"]
    assert out.params["b"].tolist() == [0.25, 0.25, 0.25]


def test_inside_jit():
    state = trained(NESTED["alone"]())
    out = jax.jit(kd.optim.UseEmaParams().transform)(state)
    assert out.params["b"].dtype == jnp.bfloat16


@pytest.mark.usefixtures("fast_python")
def test_sharding_of_the_parameters_is_kept():
    script = """
        import jax, jax.numpy as jnp, optax
        from kauldron import kd
        from types import SimpleNamespace

        class State(SimpleNamespace):
            def replace(self, **changes):
                return State(**(vars(self) | changes))

        params = {"w": kd.sharding.device_put(jnp.ones((8, 2), jnp.bfloat16))}
        optimizer = optax.chain(optax.sgd(1.0), kd.optim.ema_params(decay=0.5))
        state = State(params=params, opt_state=optimizer.init(params))
        state.opt_state = jax.device_put(state.opt_state, kd.sharding.REPLICATED)
        out = kd.optim.UseEmaParams().transform(state)
        assert out.params["w"].sharding == kd.sharding.FIRST_DIM
        assert out.params["w"].dtype == jnp.bfloat16
    """
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env=env)


def test_other_members_load_no_checkpoint_library():
    script = """
        import sys
        from kauldron import kd
        kd.optim.partial_updates, kd.optim.select, kd.optim.ema_params
        kd.optim.named_chain, kd.optim.decay_to_init
        heavy = {"orbax", "flax", "grain", "tensorflow", "kauldron.ckpts"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
    """
    processes.run_script_with_jax(script)
