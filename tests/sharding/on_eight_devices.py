"""Shardings on eight devices; run by `test_on_eight_devices.py` in a process of its own."""

import logging

import flax.core
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from kauldron import kd
from kauldron.immutabledict import ImmutableDict

WITH_OPTIMIZATIONS = False  # they are many small programs


@pytest.fixture
def first():
    return kd.sharding.FIRST_DIM


@pytest.fixture
def replicated():
    return kd.sharding.REPLICATED


@pytest.fixture
def count_compilations():
    """A list with one entry per compilation."""
    events = []

    def listen(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.clear_event_listeners()


def ones(*shape):
    """An array on a device, made without compiling anything."""
    return jax.device_put(np.ones(shape, np.float32))


def struct(*shape, dtype=jnp.float32, **kwargs):
    return jax.ShapeDtypeStruct(shape, dtype, **kwargs)


def test_there_are_eight_devices():
    assert jax.device_count() == 8


# --------------------------------------------------------------------------------------
# Constants
# --------------------------------------------------------------------------------------


def test_mesh_has_one_automatic_axis_over_all_devices():
    mesh = kd.sharding.DEVICES_MESH
    assert dict(mesh.shape) == {"devices": 8}
    assert mesh.axis_types == (AxisType.Auto,)
    assert list(mesh.devices) == jax.devices()


def test_constants(first, replicated):
    assert first == NamedSharding(kd.sharding.DEVICES_MESH, P("devices"))
    assert replicated == NamedSharding(kd.sharding.DEVICES_MESH, P())
    assert kd.sharding.FIRST_DIM is first


# --------------------------------------------------------------------------------------
# device_put
# --------------------------------------------------------------------------------------


def test_device_put_shards_the_first_dimension(first):
    batch = {"x": np.arange(16.0).reshape(8, 2), "y": [np.ones(16, bool), None]}
    placed = kd.sharding.device_put(batch, first)
    assert placed["x"].sharding == first
    assert placed["x"].addressable_shards[3].data.tolist() == [[6.0, 7.0]]
    assert placed["y"][0].dtype == bool
    assert placed["y"][1] is None
    np.testing.assert_array_equal(placed["x"], batch["x"])


def test_device_put_without_sharding_uses_the_first_dimension(first):
    assert kd.sharding.device_put(np.ones(8)).sharding == first
    assert kd.sharding.device_put({"a": np.ones(8)}, {"a": None})["a"].sharding == first


def test_device_put_takes_numbers_and_jax_arrays(replicated):
    tree = {"i": 3, "f": 0.5, "b": True, "n": np.float32(2), "j": ones(3)}
    placed = kd.sharding.device_put(tree, replicated)
    assert all(x.sharding == replicated for x in jax.tree.leaves(placed))
    assert jax.tree.map(float, {k: placed[k] for k in "ifbn"}) == {
        "i": 3.0,
        "f": 0.5,
        "b": 1.0,
        "n": 2.0,
    }
    assert not placed["i"].weak_type


def test_device_put_with_a_sharding_for_each_key(first, replicated):
    batch = {"image": np.ones((8, 3)), "scale": np.ones(5), "deep": {"a": np.ones(8)}}
    shardings = {"image": first, "scale": replicated, "deep": None}
    placed = kd.sharding.device_put(batch, shardings)
    assert placed["image"].sharding == first
    assert placed["scale"].sharding == replicated
    assert placed["deep"]["a"].sharding == first


def test_device_put_with_a_rule_and_other_shardings():
    single = SingleDeviceSharding(jax.devices()[3])
    placed = kd.sharding.device_put([np.ones(3), np.ones((16, 3))], [single, _by_rank])
    assert placed[0].sharding == single
    assert placed[1].sharding.spec == P("devices")


def _by_rank(tree):
    first, replicated = kd.sharding.FIRST_DIM, kd.sharding.REPLICATED
    return jax.tree.map(lambda x: first if x.ndim > 1 else replicated, tree)


def test_device_put_with_two_mesh_axes():
    mesh = Mesh(np.asarray(jax.devices()).reshape(2, 4), ("a", "b"))
    sharding = NamedSharding(mesh, P(("a", "b"), None))
    assert kd.sharding.device_put(np.ones((8, 3)), sharding).sharding == sharding


def test_device_put_is_one_transfer_allowed_under_the_guard(first):
    with jax.transfer_guard("disallow"):
        placed = kd.sharding.device_put({"x": np.ones(8), "y": np.ones((8, 2))}, first)
    assert placed["y"].sharding == first


@pytest.mark.parametrize("shape", [(), (7,), (12, 8)])
def test_device_put_of_an_indivisible_array_names_key_shape_and_count(first, shape):
    with pytest.raises(ValueError) as info:
        kd.sharding.device_put({"a": {"image": np.ones(shape)}}, first)
    message = str(info.value)
    assert "['a']['image']" in message
    assert str(shape) in message
    assert "8 devices" in message
    assert "batch_size" in message


@pytest.mark.parametrize(
    "value", ["text", np.array(["a", "b"]), np.array([b"x"]), np.array([{}]), object()]
)
def test_device_put_of_what_is_no_number_names_the_key(value, replicated):
    with pytest.raises(TypeError, match=r"\['name'\].*[Dd]rop the key"):
        kd.sharding.device_put({"name": value}, replicated)


def test_device_put_takes_narrow_dtypes_and_keys(replicated):
    tree = {"h": jnp.asarray(np.ones(2, jnp.bfloat16)), "k": jax.random.key(0)}
    placed = kd.sharding.device_put(tree, replicated)
    assert placed["h"].dtype == jnp.bfloat16
    assert placed["k"].sharding.is_fully_replicated


# --------------------------------------------------------------------------------------
# with_sharding_constraint
# --------------------------------------------------------------------------------------


def _mixed(first):
    def rule(tree):
        return {
            "large": first,
            "small": None,
            "inner": lambda t: kd.sharding.REPLICATED,
        }

    return {"none": None, "all": first, "rule": rule}


def _mixed_arrays():
    rule = {"large": ones(8, 2), "small": ones(3), "inner": [ones(4)]}
    return {"none": ones(8), "all": [ones(8), None, ones(16)], "rule": rule}


def _check_mixed(out, first, replicated):
    assert [x.sharding for x in (out["all"][0], out["all"][2])] == [first, first]
    assert out["all"][1] is None
    assert out["rule"]["large"].sharding.spec == P("devices")
    assert out["rule"]["inner"][0].sharding == replicated


def test_constraint_of_a_mixed_tree_outside_of_jit(first, replicated):
    arrays = _mixed_arrays()
    out = kd.sharding.with_sharding_constraint(arrays, _mixed(first))
    _check_mixed(out, first, replicated)
    assert out["none"] is arrays["none"]
    assert out["rule"]["small"] is arrays["rule"]["small"]


def test_constraint_of_a_mixed_tree_inside_of_jit(first, replicated):
    @jax.jit
    def constrain(arrays):
        return kd.sharding.with_sharding_constraint(arrays, _mixed(first))

    _check_mixed(constrain(_mixed_arrays()), first, replicated)


def test_constraint_of_shape_structs(first, replicated):
    specs = jax.eval_shape(_mixed_arrays)
    out = kd.sharding.with_sharding_constraint(specs, _mixed(first))
    _check_mixed(out, first, replicated)
    assert out["none"].sharding is None
    assert out["rule"]["large"] == struct(8, 2, sharding=first)


def test_constraint_keeps_the_weak_type_of_structs(first):
    weak = struct(8, weak_type=True)
    out = kd.sharding.with_sharding_constraint(weak, first)
    assert out.weak_type
    assert out.sharding == first


def test_constraint_of_structs_and_arrays_together(first):
    out = kd.sharding.with_sharding_constraint([struct(8), ones(8)], first)
    assert isinstance(out[0], jax.ShapeDtypeStruct)
    assert out[0].sharding == out[1].sharding == first


@pytest.mark.parametrize("mapping", [dict, ImmutableDict, flax.core.FrozenDict])
def test_mappings_match_by_key(mapping, first, replicated):
    arrays = {"b": ones(8), "a": ones(8)}
    out = kd.sharding.with_sharding_constraint(
        arrays, mapping({"a": first, "b": replicated})
    )
    assert out["a"].sharding == first
    assert out["b"].sharding == replicated
    assert list(out) == ["a", "b"] or list(out) == ["b", "a"]


def test_constraint_of_none_with_a_sharding_tree(first):
    assert kd.sharding.with_sharding_constraint(None, {"a": first}) is None


def test_mismatch_names_path_and_both_key_sets(first):
    arrays = {"enc": {"w": ones(8), "b": ones(8)}}
    with pytest.raises(ValueError, match=r"\['enc'\].*\['b', 'w'\].*\['kernel'\]"):
        kd.sharding.with_sharding_constraint(arrays, {"enc": {"kernel": first}})


def test_sharding_tree_deeper_than_the_arrays(first):
    with pytest.raises(ValueError, match=r"\['a'\].*of shape \(8,\)"):
        kd.sharding.with_sharding_constraint({"a": ones(8)}, {"a": {"b": first}})


def test_leaf_that_is_no_sharding():
    with pytest.raises(ValueError, match="a str"):
        kd.sharding.with_sharding_constraint({"a": ones(8)}, {"a": "devices"})


def test_constraint_inside_jit_of_an_indivisible_array_points_to_the_caller(first):
    def line_of_the_user(x):
        return kd.sharding.with_sharding_constraint(x, first)

    jaxpr = jax.make_jaxpr(line_of_the_user)(ones(8)).jaxpr
    text = jaxpr.pretty_print(source_info=True)
    assert "line_of_the_user" in text
    assert "constraint.py" not in text


# --------------------------------------------------------------------------------------
# FSDPSharding
# --------------------------------------------------------------------------------------


def _spec(rule, array):
    return rule(array).spec


@pytest.mark.parametrize(
    "shape, expected",
    [
        ((), P()),
        ((7, 9), P()),
        ((8, 3), P("devices", None)),
        ((8, 16), P(None, "devices")),
        ((16, 24, 16), P(None, "devices", None)),
        ((16, 16), P(None, "devices")),
        ((100, 8), P(None, "devices")),
    ],
)
def test_largest_divisible_dimension_is_sharded(shape, expected):
    rule = kd.sharding.FSDPSharding(min_size_to_shard_mb=0)
    assert _spec(rule, struct(*shape)) == expected
    assert _spec(rule, ones(*shape)) == expected
    assert _spec(rule, np.ones(shape)) == expected
    jax.jit(lambda x: _check_traced(rule, x, expected)).trace(struct(*shape))


def _check_traced(rule, x, expected):
    assert isinstance(x, jax.core.Tracer)
    assert _spec(rule, x) == expected


def test_small_arrays_are_replicated():
    rule = kd.sharding.FSDPSharding(min_size_to_shard_mb=1)
    one_mib = 2**20 // 4
    assert _spec(rule, struct(one_mib)) == P()
    assert _spec(rule, struct(one_mib + 8)) == P("devices")
    assert _spec(rule, struct(2 * one_mib, dtype=jnp.bfloat16)) == P()
    half = kd.sharding.FSDPSharding(min_size_to_shard_mb=0.5)
    assert _spec(half, struct(one_mib)) == P("devices")
    assert _spec(kd.sharding.FSDPSharding(), struct(4 * one_mib)) == P()
    assert _spec(kd.sharding.FSDPSharding(), struct(4 * one_mib + 8)) == P("devices")


def test_other_mesh_and_axis():
    mesh = Mesh(np.asarray(jax.devices()).reshape(2, 4), ("data", "model"))
    rule = kd.sharding.FSDPSharding(min_size_to_shard_mb=0, mesh=mesh, axis="model")
    assert rule(struct(12)) == NamedSharding(mesh, P("model"))
    assert rule(struct(13)) == NamedSharding(mesh, P())


def test_what_could_not_be_sharded_is_logged_once(caplog):
    rule = kd.sharding.FSDPSharding(min_size_to_shard_mb=0)
    params = {"odd": struct(3, 2**18), "odd2": struct(5), "even": struct(8)}
    rule_params = {
        "odd": struct(3, 7 * 2**16 + 1),
        "odd2": struct(5),
        "even": struct(8),
    }
    with caplog.at_level(logging.INFO, logger="kauldron"):
        rule(params)
        rule(rule_params)
        rule(rule_params)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "['odd']" in messages[1]
    assert "2 arrays" in messages[1]


def test_rule_in_a_strategy_shards_parameters(first):
    strategy = kd.sharding.ShardingStrategy(
        params=kd.sharding.FSDPSharding(min_size_to_shard_mb=0)
    )
    params = {"kernel": ones(3, 16), "bias": ones(3)}
    out = jax.jit(lambda p: kd.sharding.with_sharding_constraint(p, strategy.params))(
        params
    )
    assert out["kernel"].sharding.spec == P(None, "devices")
    assert out["bias"].sharding.is_fully_replicated


# --------------------------------------------------------------------------------------
# Shapes with shardings
# --------------------------------------------------------------------------------------


def test_shapes_with_shardings_need_no_compilation(
    count_compilations, first, replicated
):
    @jax.jit
    def inner(x):
        return kd.sharding.with_sharding_constraint(x, first)

    def init(key):
        w = jax.random.normal(key, (16, 2))
        constrained = kd.sharding.with_sharding_constraint(
            {"w": w, "step": jnp.int32(0)}, {"w": first, "step": replicated}
        )
        return constrained | {"inner": inner(w)}

    key = jax.random.PRNGKey(0)
    count_compilations.clear()
    specs = kd.sharding.eval_shape_with_sharding(init, key)
    assert count_compilations == []
    assert specs["w"] == struct(16, 2, sharding=first)
    assert specs["step"] == struct(dtype=jnp.int32, sharding=replicated)
    assert specs["inner"].sharding == first
    state = jax.jit(init)(key)
    assert jax.tree.map(lambda x: x.sharding, state) == jax.tree.map(
        lambda x: x.sharding, specs
    )


def test_shardings_left_to_jax_are_found_by_compiling(count_compilations, first):
    def init(x):
        return {"a": kd.sharding.with_sharding_constraint(x, first), "b": x + 1}

    x = kd.sharding.device_put(np.ones(8), first)
    count_compilations.clear()
    specs = kd.sharding.eval_shape_with_sharding(init, x)
    assert len(count_compilations) == 1
    assert specs["a"].sharding == first
    assert specs["b"].sharding.spec == P("devices")


# --------------------------------------------------------------------------------------
# Shapes of all processes together
# --------------------------------------------------------------------------------------


def test_global_shape_on_one_process(first, replicated):
    to_global = kd.sharding.local_to_global_shape
    mesh = kd.sharding.DEVICES_MESH
    assert to_global((8, 3), sharding=first) == (8, 3)
    assert to_global((3,), sharding=replicated) == (3,)
    trailing = NamedSharding(mesh, P("devices", None, None))
    assert to_global((8, 3), sharding=trailing) == (8, 3)


def test_global_shape_follows_the_number_of_processes(first, replicated, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    to_global = kd.sharding.local_to_global_shape
    assert to_global((8, 3), sharding=first) == (32, 3)
    assert to_global((8, 3), sharding=replicated) == (8, 3)
    mesh = Mesh(np.asarray(jax.devices()).reshape(2, 4), ("a", "b"))
    assert to_global((8,), sharding=NamedSharding(mesh, P(("a", "b")))) == (32,)


def test_global_shape_of_other_shardings_is_refused():
    mesh = kd.sharding.DEVICES_MESH
    to_global = kd.sharding.local_to_global_shape
    with pytest.raises(ValueError, match="Data can only be sharded on the first"):
        to_global((8, 8), sharding=NamedSharding(mesh, P(None, "devices")))
    with pytest.raises(ValueError, match="NamedSharding"):
        to_global((8,), sharding=SingleDeviceSharding(jax.devices()[0]))
    with pytest.raises(ValueError, match="scalar"):
        to_global((), sharding=NamedSharding(mesh, P("devices")))
