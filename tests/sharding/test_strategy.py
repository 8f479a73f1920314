"""The shardings of an experiment, on whatever devices there are."""

import contextlib
import dataclasses
import os
import pickle
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.layout import Format, Layout

from kauldron import kd
from kauldron.immutabledict import ImmutableDict

Strategy = kd.sharding.ShardingStrategy


def test_defaults():
    strategy = Strategy()
    assert strategy.batch == kd.sharding.FIRST_DIM
    assert strategy.params == kd.sharding.REPLICATED
    assert strategy.aux == kd.sharding.REPLICATED
    assert strategy.collections is None
    assert strategy.opt_state is None


def test_value_equality_and_hash():
    assert Strategy() == Strategy()
    assert hash(Strategy()) == hash(Strategy())
    assert Strategy(params=None) != Strategy()


def test_keyword_only_and_frozen():
    with pytest.raises(TypeError):
        Strategy(kd.sharding.FIRST_DIM)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Strategy().batch = None


def test_dicts_and_lists_are_frozen_so_that_it_is_a_static_argument():
    strategy = Strategy(batch={"x": [kd.sharding.FIRST_DIM, None]}, params={"a": None})
    assert isinstance(strategy.batch, ImmutableDict)

    run = jax.jit(lambda x, s: x, static_argnums=1)
    assert run(1.0, strategy) == 1.0
    assert strategy == Strategy(
        params={"a": None}, batch={"x": [kd.sharding.FIRST_DIM, None]}
    )


def test_older_name_of_batch_warns_once():
    strategy = Strategy(batch=None)
    with pytest.warns(DeprecationWarning, match="batch") as record:
        assert strategy.ds is None
    assert len(record) == 1
    assert record[0].filename == __file__


def test_older_name_in_the_constructor():
    sharding = kd.sharding.REPLICATED
    assert Strategy(ds=sharding).batch == sharding
    assert Strategy(batch=None, ds=sharding).batch == sharding


def test_older_name_in_replace():
    sharding = kd.sharding.REPLICATED
    replaced = dataclasses.replace(Strategy(params=None), ds=sharding)
    assert replaced.batch == sharding
    assert replaced.params is None


def test_subclass_may_add_fields_and_set_a_mesh():
    entered = []

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class WithMesh(Strategy):
        tensor: int = 1

        @contextlib.contextmanager
        def set_global_mesh(self):
            entered.append(self.tensor)
            yield

    strategy = WithMesh(ds=None, tensor=2)
    with strategy.set_global_mesh():
        pass
    assert entered == [2]
    assert strategy.batch is None


def test_no_mesh_is_set_by_default():
    with Strategy().set_global_mesh():
        assert jax.sharding.get_abstract_mesh().empty


def test_unknown_keyword():
    with pytest.raises(TypeError, match="batches"):
        Strategy(batches=None)


def test_rules_are_values():
    rule = kd.sharding.FSDPSharding(min_size_to_shard_mb=2)
    assert Strategy(params=rule) == Strategy(
        params=kd.sharding.FSDPSharding(min_size_to_shard_mb=2)
    )
    assert pickle.loads(pickle.dumps(rule)) == rule


def test_shapes_with_shardings_on_one_device():
    specs = kd.sharding.eval_shape_with_sharding(
        lambda x, *, y: x + y, 1.0, y=jnp.ones(3)
    )
    assert specs.shape == (3,)
    assert specs.sharding.device_set == {jax.devices()[0]}


def test_struct_with_a_change():
    struct = jax.ShapeDtypeStruct((2,), jnp.float32, weak_type=True)
    changed = kd.sharding.replace_shape_dtype_struct(struct, shape=(3,))
    assert (changed.shape, changed.dtype, changed.weak_type) == (
        (3,),
        jnp.float32,
        True,
    )
    with pytest.raises(TypeError, match="shpe"):
        kd.sharding.replace_shape_dtype_struct(struct, shpe=(3,))


def test_struct_with_a_layout_can_get_another_sharding():
    layout = Format(Layout(major_to_minor=(1, 0)), kd.sharding.REPLICATED)
    struct = jax.ShapeDtypeStruct((2, 3), jnp.float32, sharding=layout)
    first = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert kd.sharding.with_sharding_constraint(struct, first).sharding == first


def test_importing_starts_no_backend_and_loads_nothing():
    script = """
        import sys
        from kauldron import kd
        kd.sharding
        assert "jax" not in sys.modules
        kd.sharding.ShardingStrategy, kd.sharding.device_put, kd.sharding.FSDPSharding
        heavy = {"tensorflow", "orbax", "grain", "flax", "optax", "sklearn", "pandas"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        try:
            kd.sharding.FIRST_DIM
        except RuntimeError as error:
            assert "no_such_platform" in str(error)
        else:
            raise AssertionError("the check above cannot fail")
    """
    # Starting a backend would fail.
    env = os.environ | {"JAX_PLATFORMS": "no_such_platform"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env=env)
