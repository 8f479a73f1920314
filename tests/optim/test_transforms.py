"""Freezing, chains, decay towards the start and averages of parameters."""

import functools

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from kauldron import kd

PARAMS = {
    "encoder": {
        "kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "bias": np.ones(3, np.float32),
    },
    "head": {"kernel": np.full((3,), 2.0, np.float32)},
}
GRADS = jax.tree.map(lambda x: np.float32(0.1) * x + np.float32(0.5), PARAMS)


def assert_trees_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def run(optimizer, params=PARAMS, grads=GRADS, num_steps=1):
    """Parameters, the last updates and the state after some steps."""

    @jax.jit
    def steps(params):
        state = optimizer.init(params)
        for _ in range(num_steps):
            updates, state = optimizer.update(grads, state, params)
            params = optax.apply_updates(params, updates)
        return params, updates, state

    return steps(params)


# --------------------------------------------------------------------------------------
# partial_updates
# --------------------------------------------------------------------------------------


def test_both_spellings_are_one_function():
    assert kd.optim.partial_update is kd.optim.partial_updates


def test_frozen_leaves_get_zero_and_have_no_moments():
    optimizer = kd.optim.partial_updates(
        optimizer=optax.adam(0.1), mask=kd.optim.select("head")
    )
    _, updates, state = run(optimizer, num_steps=2)
    for leaf in jax.tree.leaves(updates["encoder"]):
        np.testing.assert_array_equal(leaf, 0.0)
    adam = state.inner_states["train"].inner_state[0]
    assert jax.tree.map(jnp.shape, adam.mu["head"]) == {"kernel": (3,)}
    assert jax.tree.leaves(adam.mu["encoder"]) == []


def test_trained_leaves_get_the_update_of_the_bare_optimizer():
    chain = optax.chain(optax.clip_by_global_norm(0.3), optax.adam(0.1))
    partial = kd.optim.partial_updates(chain, kd.optim.exclude("encoder"))
    _, updates, _ = run(partial, num_steps=3)
    _, expected, _ = run(
        chain,
        params={"head": PARAMS["head"]},
        grads={"head": GRADS["head"]},
        num_steps=3,
    )
    assert_trees_equal(updates["head"], expected["head"])


@pytest.mark.parametrize(
    "mask",
    [
        {"encoder": {"kernel": True, "bias": False}, "head": {"kernel": False}},
        {"encoder": {"kernel": np.True_, "bias": False}, "head": False},
        kd.optim.select("encoder.kernel"),
        lambda params: jax.tree.map(lambda x: x.ndim == 2, params),
    ],
    ids=["tree", "prefix", "select", "function"],
)
def test_mask_may_be_a_tree_a_prefix_or_a_function(mask):
    _, updates, _ = run(kd.optim.partial_updates(optax.sgd(1.0), mask))
    np.testing.assert_array_equal(
        updates["encoder"]["kernel"], -GRADS["encoder"]["kernel"]
    )
    np.testing.assert_array_equal(updates["encoder"]["bias"], 0.0)
    np.testing.assert_array_equal(updates["head"]["kernel"], 0.0)


@pytest.mark.parametrize("leaf", [1, "train", None, 0.5, jnp.ones(2)])
def test_mask_that_is_no_tree_of_bools(leaf):
    optimizer = kd.optim.partial_updates(
        optax.sgd(1.0), {"encoder": leaf, "head": True}
    )
    with pytest.raises((TypeError, ValueError)):
        optimizer.init(PARAMS)


def test_mask_that_selects_nothing_warns_with_the_paths():
    optimizer = kd.optim.partial_updates(optax.sgd(1.0), kd.optim.select("decoder"))
    with pytest.warns(UserWarning, match="nothing will be trained") as record:
        optimizer.init(PARAMS)
    assert len(record) == 1
    assert "select('decoder')" in str(record[0].message)
    assert "encoder, head" in str(record[0].message)


@pytest.mark.filterwarnings("error")
def test_mask_that_selects_something_does_not_warn():
    for mask in (kd.optim.select("head"), kd.optim.exclude("nothing")):
        kd.optim.partial_updates(optax.sgd(1.0), mask).init(PARAMS)


def test_extra_arguments_reach_the_optimizer():
    def update(updates, state, params=None, *, factor):
        return jax.tree.map(lambda u: factor * u, updates), state

    scale = optax.GradientTransformationExtraArgs(lambda p: optax.EmptyState(), update)
    optimizer = kd.optim.partial_updates(scale, kd.optim.select("head"))
    updates, _ = optimizer.update(GRADS, optimizer.init(PARAMS), PARAMS, factor=3.0)
    np.testing.assert_array_equal(
        updates["head"]["kernel"], 3 * GRADS["head"]["kernel"]
    )


def test_state_is_that_of_multi_transform():
    optimizer = kd.optim.partial_updates(optax.adam(0.1), kd.optim.select("head"))
    labels = {"encoder": "freeze", "head": "train"}
    reference = optax.multi_transform(
        {"train": optax.adam(0.1), "freeze": optax.set_to_zero()},
        lambda p: {k: jax.tree.map(lambda _: labels[k], v) for k, v in p.items()},
    )
    assert_trees_equal(optimizer.init(PARAMS), reference.init(PARAMS))
    paths = [
        str(kd.kontext.Path.from_jax_path(path))
        for path, _ in jax.tree_util.tree_leaves_with_path(optimizer.init(PARAMS))
    ]
    assert "inner_states.train.inner_state[0].mu.head.kernel" in paths


def test_integer_parameters_can_be_frozen():
    params = {"w": jnp.ones(2), "table": jnp.arange(3)}

    def loss(p):
        return jnp.sum(p["w"] ** 2) + 0.0 * p["table"][0]

    grads = jax.jit(jax.grad(loss, allow_int=True))(params)
    assert grads["table"].dtype == jax.dtypes.float0
    optimizer = kd.optim.partial_updates(
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1)),
        kd.optim.exclude("table"),
    )
    new_params, updates, _ = run(optimizer, params, grads)
    assert new_params["table"].tolist() == [0, 1, 2]
    assert new_params["table"].dtype == params["table"].dtype
    assert updates["table"].tolist() == [0, 0, 0]


# --------------------------------------------------------------------------------------
# named_chain
# --------------------------------------------------------------------------------------


def test_named_chain_equals_the_chain_in_that_order():
    parts = {
        "clip": optax.clip(0.2),
        "adam": optax.scale_by_adam(),
        "lr": kd.optim.scale_by_learning_rate(0.1),
    }
    _, updates, state = run(kd.optim.named_chain(**parts), num_steps=2)
    _, expected, _ = run(optax.chain(*parts.values()), num_steps=2)
    assert_trees_equal(updates, expected)
    assert list(state) == ["clip", "adam", "lr"]
    assert kd.kontext.get_by_path(state, "adam.mu.head.kernel").shape == (3,)


def test_empty_chain_is_the_identity():
    _, updates, _ = run(kd.optim.named_chain())
    assert_trees_equal(updates, GRADS)


def test_names_that_are_no_identifiers():
    chain = kd.optim.named_chain(**{"1st": optax.scale(2.0)})
    assert list(chain.init(PARAMS)) == ["1st"]


def test_named_chain_warns_of_parts_that_freeze_what_others_train():
    chain = kd.optim.named_chain(
        clip=optax.clip(1.0),
        slow=kd.optim.partial_updates(optax.sgd(0.1), kd.optim.select("encoder")),
        fast=kd.optim.partial_updates(optax.sgd(1.0), kd.optim.exclude("encoder")),
    )
    message = r"'slow' trains 'encoder\.bias' and 'fast' freezes it.*optax\.masked"
    with pytest.warns(UserWarning, match=message):
        params, _, _ = run(chain)
    assert_trees_equal(params, PARAMS)


def test_chained_masked_optimizers_train_each_their_own_parameters():
    chain = kd.optim.named_chain(
        slow=optax.masked(optax.sgd(0.1), kd.optim.select("encoder")),
        fast=optax.masked(optax.sgd(1.0), kd.optim.exclude("encoder")),
    )
    _, updates, _ = run(chain)
    factors = {"encoder": {"kernel": -0.1, "bias": -0.1}, "head": {"kernel": -1.0}}
    expected = jax.tree.map(lambda factor, grad: factor * grad, factors, GRADS)
    jax.tree.map(np.testing.assert_allclose, updates, expected)


@pytest.mark.filterwarnings("error")
def test_named_chain_accepts_several_parts_for_the_same_parameters():
    mask = {"encoder": False, "head": True}  # a prefix of the parameters
    chain = kd.optim.named_chain(
        double=kd.optim.partial_updates(optax.scale(2.0), mask),
        sgd=kd.optim.partial_updates(optax.sgd(1.0), kd.optim.select("head")),
    )
    _, updates, _ = run(chain)
    np.testing.assert_allclose(updates["head"]["kernel"], -2 * GRADS["head"]["kernel"])


# --------------------------------------------------------------------------------------
# decay_to_init
# --------------------------------------------------------------------------------------


def _decay(weight_decay, moved_by=0.0, **kwargs):
    """Updates from zero gradients after the parameters have moved."""
    optimizer = kd.optim.decay_to_init(weight_decay, **kwargs)
    moved = jax.tree.map(lambda p: p + np.float32(moved_by), PARAMS)
    zeros = jax.tree.map(np.zeros_like, PARAMS)

    @jax.jit
    def update(params):
        return optimizer.update(zeros, optimizer.init(params), moved)

    return update(PARAMS)


def test_no_decay_at_the_start():
    optimizer = kd.optim.decay_to_init(0.5)
    updates, _ = optimizer.update(GRADS, optimizer.init(PARAMS), PARAMS)
    assert_trees_equal(updates, GRADS)


def test_decay_is_proportional_to_the_distance():
    updates, state = _decay(0.5, moved_by=4.0)
    for leaf in jax.tree.leaves(updates):
        np.testing.assert_array_equal(leaf, 2.0)
    assert_trees_equal(state.init_params, PARAMS)
    assert isinstance(state, kd.optim.DecayToInitState)


def test_decay_in_training_pulls_back():
    optimizer = optax.chain(kd.optim.decay_to_init(1.0), optax.sgd(0.5))
    state = optimizer.init(jnp.zeros(()))
    position = jnp.full((), 8.0)
    for _ in range(3):
        updates, state = optimizer.update(jnp.zeros(()), state, position)
        position = optax.apply_updates(position, updates)
    assert float(position) == 1.0


@pytest.mark.parametrize(
    "mask",
    [
        kd.optim.exclude("bias"),
        {"encoder": {"kernel": True, "bias": False}, "head": True},
    ],
)
def test_decay_honours_its_mask(mask):
    updates, state = _decay(0.5, moved_by=4.0, mask=mask)
    np.testing.assert_array_equal(updates["encoder"]["bias"], 0.0)
    np.testing.assert_array_equal(updates["encoder"]["kernel"], 2.0)
    assert jax.tree.leaves(state.inner_state.init_params["encoder"]["bias"]) == []


@pytest.mark.parametrize("mask", [None, kd.optim.exclude("bias")])
def test_decay_without_parameters_is_refused(mask):
    optimizer = kd.optim.decay_to_init(0.5, mask=mask)
    with pytest.raises(ValueError, match="decay_to_init needs the current parameters"):
        optimizer.update(GRADS, optimizer.init(PARAMS))


def test_scheduled_decay():
    optimizer = kd.optim.decay_to_init(lambda count: 0.1 * count)
    state = optimizer.init(jnp.zeros(()))
    seen = []
    for _ in range(3):
        update, state = optimizer.update(jnp.zeros(()), state, jnp.ones(()))
        seen.append(float(update))
    np.testing.assert_allclose(seen, [0.0, 0.1, 0.2], rtol=1e-6)
    assert int(state.count) == 3


def test_decay_keeps_the_dtype_of_the_updates():
    optimizer = kd.optim.decay_to_init(jnp.float32(0.5))
    params = jnp.ones(2, jnp.float32)
    grads = jnp.ones(2, jnp.bfloat16)
    updates, _ = optimizer.update(grads, optimizer.init(params), params + 1)
    assert updates.dtype == jnp.bfloat16
    assert updates.tolist() == [1.5, 1.5]


def test_initial_parameters_survive_the_donation_of_the_parameters():
    optimizer = kd.optim.decay_to_init(0.5)
    params = jnp.ones(3)
    state = optimizer.init(params)
    moved = jax.jit(lambda p: p + 1, donate_argnums=0)(params)
    updates, _ = optimizer.update(jnp.zeros(3), state, moved)
    assert updates.tolist() == [0.5, 0.5, 0.5]


# --------------------------------------------------------------------------------------
# ema_params
# --------------------------------------------------------------------------------------


def _ema(num_steps=1, params=0.0, grads=-1.0, dtype=jnp.float32, **kwargs):
    """Parameters that move by 1 at each step, and their average."""
    optimizer = optax.chain(optax.sgd(1.0), kd.optim.ema_params(**kwargs))
    params, grads = jnp.asarray(params, dtype), jnp.asarray(grads, dtype)
    new_params, updates, state = run(optimizer, params, grads, num_steps)
    return new_params, updates, state[1]


def test_first_average_with_and_without_debias():
    _, _, state = _ema(decay=0.9)
    np.testing.assert_allclose(state.ema_params, 9 / 11, rtol=1e-6)
    _, _, state = _ema(decay=0.9, debias=False)
    np.testing.assert_allclose(state.ema_params, 0.1, rtol=1e-6)
    assert isinstance(state, kd.optim.EmaParamsState)
    assert state.count.dtype == jnp.int32
    assert int(state.count) == 1


def test_average_follows_the_recurrence():
    decay, average = 0.3, 0.0
    for count in range(1, 6):
        kept = min(decay, (1 + count) / (10 + count))
        average = kept * average + (1 - kept) * count
    _, _, state = _ema(num_steps=5, decay=decay)
    np.testing.assert_allclose(state.ema_params, average, rtol=1e-6)


def test_average_leaves_the_updates_alone():
    _, with_average, _ = run(
        optax.chain(optax.adam(0.1), kd.optim.ema_params(decay=0.9))
    )
    _, without, _ = run(optax.adam(0.1))
    assert_trees_equal(with_average, without)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_average_of_narrow_parameters_is_kept_in_float32(dtype):
    _, _, state = _ema(num_steps=3, dtype=dtype, decay=0.999, debias=False)
    assert state.ema_params.dtype == jnp.float32
    np.testing.assert_allclose(state.ema_params, 0.005994, rtol=1e-3)


def test_dtype_of_the_average_can_be_chosen():
    _, _, state = _ema(decay=0.9, accumulator_dtype=jnp.bfloat16)
    assert state.ema_params.dtype == jnp.bfloat16


@pytest.mark.parametrize("decay", [-0.1, 1.1, float("nan")])
def test_decay_out_of_range(decay):
    with pytest.raises(ValueError, match="from 0 to 1"):
        kd.optim.ema_params(decay=decay)


def test_average_without_parameters_is_refused():
    optimizer = kd.optim.ema_params(decay=0.9)
    with pytest.raises(ValueError, match="ema_params needs the current parameters"):
        optimizer.update(GRADS, optimizer.init(PARAMS))


def test_frozen_parameters_have_no_average():
    chain = optax.chain(optax.sgd(1.0), kd.optim.ema_params(decay=0.9))
    optimizer = kd.optim.partial_updates(chain, kd.optim.select("head"))
    _, _, state = run(optimizer)
    average = state.inner_states["train"].inner_state[1].ema_params
    assert jax.tree.leaves(average["encoder"]) == []
    assert average["head"]["kernel"].shape == (3,)


def test_integer_parameters_are_copied_into_the_average():
    params = {"w": jnp.zeros(()), "table": jnp.arange(3)}
    grads = {"w": jnp.ones(()), "table": np.zeros(3, jax.dtypes.float0)}
    optimizer = kd.optim.ema_params(decay=0.5)
    _, state = optimizer.update(grads, optimizer.init(params), params)
    assert state.ema_params["table"].tolist() == [0, 1, 2]


# --------------------------------------------------------------------------------------
# All of them
# --------------------------------------------------------------------------------------

TRANSFORMS = {
    "partial": lambda: kd.optim.partial_updates(
        optax.adam(0.1), kd.optim.select("head")
    ),
    "chain": lambda: kd.optim.named_chain(b=optax.adam(0.1), a=optax.clip(1.0)),
    "decay": lambda: kd.optim.decay_to_init(0.1, mask=kd.optim.exclude("bias")),
    "scheduled decay": lambda: kd.optim.decay_to_init(optax.constant_schedule(0.1)),
    "ema": lambda: kd.optim.ema_params(decay=0.9, accumulator_dtype=jnp.bfloat16),
    "nested": lambda: kd.optim.partial_updates(
        kd.optim.named_chain(
            decay=kd.optim.decay_to_init(0.1),
            sgd=optax.sgd(0.1, momentum=0.9),
            ema=kd.optim.ema_params(decay=0.9),
        ),
        kd.optim.select("encoder"),
    ),
}


class Training:
    """Training by a transformation.

    Attributes:
      transform: The transformation.
      states: Parameters and state before any step, and after each of three.
      traces: Grows with each trace of the step.
    """

    def __init__(self, transform):
        self.transform = transform
        self.traces = []
        self.states = [(PARAMS, jax.jit(transform.init)(PARAMS))]
        for _ in range(3):
            self.states.append(self.step(*self.states[-1]))

    @functools.cached_property
    def step(self):
        def step(params, state):
            self.traces.append(None)
            updates, state = self.transform.update(GRADS, state, params)
            return optax.apply_updates(params, updates), state

        return jax.jit(step)


@pytest.fixture(scope="module")
def trainings():
    return {name: Training(make()) for name, make in TRANSFORMS.items()}


def _specs(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_state_keeps_its_structure_and_the_step_compiles_once(trainings, name):
    training = trainings[name]
    (_, first), *_, (_, last) = training.states
    structure = jax.tree.structure(training.transform.init(PARAMS))
    assert jax.tree.structure(first) == jax.tree.structure(last) == structure
    assert _specs(last) == _specs(first)
    assert len(training.traces) == 1


@pytest.fixture(scope="module")
def restored(trainings, tmp_path_factory):
    """What all had after two steps, saved and restored."""
    path = tmp_path_factory.mktemp("saved") / "state"
    saved = {name: training.states[2] for name, training in trainings.items()}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, saved)
        checkpointer.wait_until_finished()
        return checkpointer.restore(path, jax.eval_shape(lambda: saved))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_training_continues_from_a_checkpoint(trainings, restored, name):
    """Three steps, or two, a save, a restore and one more: the same numbers."""
    training = trainings[name]
    params, state = jax.device_get(restored[name])
    assert jax.tree.structure(state) == jax.tree.structure(training.states[2][1])
    assert_trees_equal(training.step(params, state), training.states[3])


def test_optimizer_on_flax_structs():
    @flax.struct.dataclass
    class Model:
        head: jax.Array
        encoder: jax.Array

    params = Model(head=jnp.ones(2), encoder=jnp.ones(2))
    optimizer = kd.optim.partial_updates(optax.sgd(1.0), kd.optim.select("head"))
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    assert updates.encoder.tolist() == [0.0, 0.0]
    assert updates.head.tolist() == [-1.0, -1.0]
