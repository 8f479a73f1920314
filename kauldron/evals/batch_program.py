"""One compiled call that measures batches and merges what is measured."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import sharding as kd_sharding
from kauldron.data import utils as data_utils
from kauldron.evals.leaf_packing import LeafPacking
from kauldron.evals.state_merging import MergePlan, States

if TYPE_CHECKING:
    from kauldron.evals.evaluator import Evaluator
    from kauldron.train import AuxiliariesState, TrainState


Vectors = list[Any]


class BatchProgram:
    """Measures batches of an evaluator. Made once, because it is compiled.

    What was merged goes from call to call packed into a few vectors.

    Attributes:
      plan: Which states merge on the device.
    """

    def __init__(self, evaluator: Evaluator, state: TrainState, batch: Any):
        """Find out what is measured.

        Args:
          evaluator: Says what to measure.
          state: A state to evaluate.
          batch: A batch, or its specs.
        """
        self._evaluator = evaluator
        self._sharding = evaluator.base_cfg.sharding.aux
        aux = abstract_states(evaluator, state, batch)
        self.plan = MergePlan(aux)
        device, _ = self.plan.split(aux)
        self._packing = LeafPacking(jax.eval_shape(_merge, device, device))

    @functools.cached_property
    def _nothing(self) -> Vectors:
        """What the first batch is merged with, in vain: something of the right shapes."""
        return jax.device_put(self._packing.zeros(), self._sharding)

    def run(
        self,
        merged: Vectors | None,
        *,
        index: int,
        state: TrainState,
        batches: Any,
        size: int,
    ) -> tuple[Vectors, States]:
        """Measure batches.

        Args:
          merged: What earlier calls gave; `None` for the first one.
          index: Index of the first batch.
          state: The state to evaluate.
          batches: A batch; with `size > 1`, that many stacked on a leading axis.
          size: Number of batches.

        Returns:
          What is merged so far, and the states that merge on the host.
        """
        is_first = np.bool_(merged is None)
        merged = self._nothing if merged is None else merged
        return self._measure(size, merged, is_first, np.int32(index), state, batches)

    def unpack(self, merged: Vectors) -> States:
        """What was merged, by name; waits for it."""
        return self._packing.unpack(jax.device_get(merged))

    @functools.cached_property
    def _measure(self) -> Any:
        """Compiled; it belongs to this program, and goes with it."""
        return jax.jit(self._measure_all, static_argnums=0)

    def _measure_all(
        self,
        size: int,
        vectors: Vectors,
        is_first: Any,
        index: Any,
        state: TrainState,
        batches: Any,
    ) -> tuple[Vectors, States]:
        body = functools.partial(self._measure_one, state=state)
        carry = (self._packing.unpack(vectors), is_first, index)
        if size == 1:
            (merged, *_), host = body(carry, batches)
        else:
            (merged, *_), host = jax.lax.scan(body, carry, batches)
        vectors = self._packing.pack(merged)
        return kd_sharding.with_sharding_constraint(vectors, self._sharding), host

    def _measure_one(
        self, carry: Any, batch: Any, state: TrainState
    ) -> tuple[Any, States]:
        merged, is_first, index = carry
        aux = self._evaluator.step(step_nr=index, state=state, batch=batch)
        device, host = self.plan.split(aux)
        merged = jax.tree.map(
            lambda a, b: jnp.where(is_first, a.astype(b.dtype), b),
            device,
            _merge(merged, device),
        )
        return (merged, jnp.zeros_like(is_first), index + 1), host


def _merge(mine: States, other: States) -> States:
    return {name: state.merge(other[name]) for name, state in mine.items()}


def abstract_states(
    evaluator: Evaluator, state: TrainState, batch: Any
) -> AuxiliariesState:
    """The states of a batch (or of its specs), without computing them."""

    def step(index: Any, state: TrainState, batch: Any) -> AuxiliariesState:
        return evaluator.step(step_nr=index, state=state, batch=batch)

    return jax.eval_shape(step, np.int32(0), state, batch).replace(error=None)


def batch_specs(evaluator: Evaluator) -> Any:
    """A global batch of the evaluator's data as `jax.ShapeDtypeStruct`s."""
    sharding = evaluator.base_cfg.sharding.batch
    spec = data_utils.get_global_elem_spec(evaluator.records.element_spec, sharding)
    return jax.eval_shape(lambda: data_utils.mock_batch_from_elem_spec(spec, sharding))
