"""Check a trainer by shapes alone."""

from __future__ import annotations

import functools
from typing import Any

import jax

from kauldron import sharding as kd_sharding
from kauldron.errors import error_prefix
from kauldron.sharding.tree import flatten_with_shardings


def assert_step_specs(trainer: Any, *, evals: bool = False) -> Any:
    """Check that a train step works, without computing or writing anything.

    Losses, metrics, summaries, keys and the optimizer are all traced, so a key that does
    not exist or shapes that do not fit raise the error they would raise in training.
    Transforms that load weights are left out.

    Args:
      trainer: A `kd.train.Trainer` whose `train_ds` can tell its `element_spec`.
      evals: Whether to check the step of each evaluator on its own data too.

    Returns:
      The `kd.train.Context` after the step, with `jax.ShapeDtypeStruct`s as leaves.
    """
    state = jax.eval_shape(lambda: trainer.init_state(skip_transforms=True))
    batch = _batch_spec(trainer.train_ds.element_spec, trainer.sharding.batch)
    step = functools.partial(
        trainer.trainstep.step,
        return_losses=True,
        return_metrics=True,
        return_summaries=True,
    )
    jax.eval_shape(step, state, batch)
    _, context = jax.eval_shape(trainer.trainstep._step, state, batch)
    if evals:
        for name, evaluator in trainer.evals.items():
            with error_prefix(f"Evaluator {name}: "):
                _check_evaluator(evaluator, state, trainer.sharding.batch)
    return context


def _check_evaluator(evaluator: Any, state: Any, sharding: Any) -> None:
    if not (hasattr(evaluator, "step") and hasattr(evaluator, "ds")):
        return  # it has no step on batches
    batch = _batch_spec(evaluator.ds.element_spec, sharding)
    step_nr = jax.ShapeDtypeStruct((), "int32")
    jax.eval_shape(
        lambda step_nr, state, batch: evaluator.step(
            step_nr=step_nr, state=state, batch=batch
        ),
        *(step_nr, state, batch),
    )


def _batch_spec(element_spec: Any, sharding: Any) -> Any:
    """The global batch of which `element_spec` is the part of this process."""
    structs = []
    for leaf in flatten_with_shardings(element_spec, sharding):
        with error_prefix(f"Element {leaf.name} of the data: "):
            structs.append(_struct(leaf.value, leaf.sharding))
    return jax.tree.unflatten(jax.tree.structure(element_spec), structs)


def _struct(spec: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    # A size that is not known: one example per device, and 1 elsewhere.
    unknown = (jax.local_device_count(), *(1 for _ in spec.shape[1:]))
    local = tuple(u if size is None else size for size, u in zip(spec.shape, unknown))
    sharding = kd_sharding.FIRST_DIM if sharding is None else sharding
    shape = kd_sharding.local_to_global_shape(local, sharding=sharding)
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(spec.dtype))
