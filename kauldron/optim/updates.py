"""Updates of the parameters, gradients of a large batch in parts, values of schedules."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from kauldron import kontext
from kauldron.errors import error_prefix


def update(
    optimizer: optax.GradientTransformation,
    grads: Any,
    opt_state: Any,
    params: Any,
    **extra_args: Any,
) -> tuple[Any, Any]:
    """Call `optimizer.update`. Integer parameters get an update of exactly zero.

    Args:
      optimizer: The optimizer.
      grads: The gradients, those of integer parameters as `with_zeros` gives them.
      opt_state: The optimizer's state.
      params: The parameters.
      **extra_args: What some optimizers ask for: `value`, `grad`, `value_fn`. Others
        do not get them.

    Returns:
      The updates and the new state.
    """
    updates, new_state = optimizer.update(
        grads, opt_state, params, **_accepted(optimizer.update, extra_args)
    )
    if not any(map(_is_integer, jax.tree.leaves(params))):
        return updates, new_state
    # Weight decay, for example, does not ask what it decays; and moments made for
    # integers must stay integers from step to step.
    updates = jax.tree.map(
        lambda u, p: jnp.zeros_like(p) if _is_integer(p) else u, updates, params
    )
    return updates, jax.tree.map(
        lambda new, old: jnp.asarray(new, old.dtype), new_state, opt_state
    )


def with_zeros(grads: Any, params: Any) -> Any:
    """Return the gradients with zeros for integer parameters, where JAX has none."""
    return jax.tree.map(
        lambda g, p: jnp.zeros(p.shape) if g.dtype == jax.dtypes.float0 else g,
        *(grads, params),
    )


def _is_integer(param: Any) -> bool:
    return not jnp.issubdtype(param.dtype, jnp.inexact)


def _accepted(function: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    # Asked of the signature, since not all that take them are
    # `GradientTransformationExtraArgs`: `optax.MultiSteps` is not.
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


#
# A large batch, one part of it after the other
#


def scan_parts(
    function: Callable[[Any, Any, Any], tuple[Any, Any, Any]],
    carry: Any,
    batch: Any,
    num_parts: int,
) -> tuple[Any, Any, Any]:
    """Apply a function to parts of a batch, and put together what it returns.

    Records are dealt out one by one, so that each part lies on all devices that the
    batch lies on.

    Args:
      function: Takes the carry, the number of the part and the part; returns the next
        carry, values to average over the parts, and values to put together.
      carry: The first carry.
      batch: Arrays whose first axis is that of the records.
      num_parts: How many parts.

    Returns:
      The last carry; the averages; and the values put together, as if they came from
      the whole batch. Of those, arrays whose shape does not depend on the batch size
      are averaged too, or taken from the last part if they are not floating-point.
    """
    parts = split_batch(batch, num_parts)
    _, averages, whole = jax.eval_shape(function, carry, 0, batch)
    sums = jax.tree.map(lambda spec: jnp.zeros(spec.shape, _sum_dtype(spec)), averages)

    def step(state: Any, part: Any) -> tuple[Any, Any]:
        carry, sums = state
        carry, values, rest = function(carry, *part)
        return (carry, jax.tree.map(lambda s, v: s + v, sums, values)), rest

    numbers = jnp.arange(num_parts)
    (carry, sums), rest = jax.lax.scan(step, (carry, sums), (numbers, parts))
    averages = jax.tree.map(
        lambda total, spec: (total / num_parts).astype(spec.dtype), sums, averages
    )
    return carry, averages, jax.tree.map(_join, rest, whole)


def _sum_dtype(spec: Any) -> Any:
    return jnp.promote_types(spec.dtype, jnp.float32)


def split_batch(batch: Any, num_parts: int) -> Any:
    """Return the batch with an axis of parts in front: part `i` is `batch[i::n]`."""

    def split(path: Any, array: Any) -> Any:
        if not array.ndim or array.shape[0] % num_parts:
            raise ValueError(
                f"The batch cannot be divided into num_microbatches={num_parts} equal "
                f"parts: {_name(path)!r} has shape {array.shape}."
            )
        rows = array.reshape(-1, num_parts, *array.shape[1:])
        return jnp.moveaxis(rows, 1, 0)

    return jax.tree_util.tree_map_with_path(split, batch)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _join(parts: jax.Array, whole: jax.ShapeDtypeStruct) -> jax.Array:
    """Join the results of the parts `batch[i::n]` into that of the whole batch."""
    part_shape = parts.shape[1:]
    axes = [a for a, size in enumerate(whole.shape) if size != part_shape[a]]
    if not axes:
        is_float = jnp.issubdtype(parts.dtype, jnp.inexact)
        return parts.mean(axis=0, dtype=parts.dtype) if is_float else parts[-1]
    return jnp.moveaxis(parts, 0, axes[0] + 1).reshape(whole.shape)


#
# Schedules: how far they are, and their values for the log
#


_STATES = (
    optax.ScaleByScheduleState,
    optax.InjectHyperparamsState,
    optax.InjectStatefulHyperparamsState,
)


def schedule_counts(opt_state: Any) -> list[jax.Array]:
    """Return the counts at which the next update evaluates its schedules.

    Usually that is the number of the step. It is not where an optimizer does not update
    at each step: under `optax.MultiSteps`, or `optax.apply_if_finite`.

    Example:
      >>> optimizer = optax.adam(optax.constant_schedule(0.1))
      >>> [int(count) for count in schedule_counts(optimizer.init(1.0))]
      [0]
    """
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda n: isinstance(n, _STATES))
    return [node.count for node in nodes if isinstance(node, _STATES)]


@dataclasses.dataclass
class ScheduleAt:
    """A schedule that is evaluated at a fixed count, whatever the step."""

    schedule: Any
    count: int

    def __call__(self, step: int) -> float:
        del step
        return _value_at(self.schedule, self.count)


def schedule_values(schedules: Mapping[str, Any], step: int) -> dict[str, float]:
    """Return the value of each schedule at `step`, computed on the host."""
    if not schedules:
        return {}
    flat = kontext.flatten_with_path(schedules, separator="/")
    with jax.transfer_guard("allow"), jax.default_device(_host_device()):
        values = {}
        for name, schedule in flat.items():
            with error_prefix(f"schedules/{name} at step {step}: "):
                values[name] = _value_at(schedule, step)
        return values


def _value_at(schedule: Any, step: int) -> float:
    with contextlib.suppress(TypeError):  # it has no hash to remember it by
        schedule = _compiled(schedule)
    return float(schedule(step))


@functools.cache
def _host_device() -> jax.Device | None:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX may use the accelerator only
        return None


@functools.lru_cache(maxsize=128)
def _compiled(schedule: Any) -> Any:
    """Return the schedule as one program; Python-only ones are called as they are."""
    try:
        jax.eval_shape(schedule, np.int32(0))
    except Exception:
        return schedule
    return jax.jit(schedule)
