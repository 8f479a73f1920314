"""States of many batches into one, without waiting for the device."""

from __future__ import annotations

from typing import Any

import jax

from kauldron import metrics
from kauldron.train.auxiliaries import AuxiliariesState


class StateMerger:
    """Merges on the device what can be traced, and on the host what collects.

    What collects receives each batch's arrays one batch late: their copy to the host
    runs while the next batch is computed.
    """

    def __init__(self) -> None:
        self._structure: Any = None
        self._traceable: list[bool] = []
        self._on_device: list[Any] | None = None
        self._on_host: list[Any] = []
        self._late: list[Any] = []

    def add(self, aux: AuxiliariesState) -> None:
        """Take the states of one more batch."""
        states, structure = jax.tree.flatten(aux, is_leaf=metrics.State.isinstance)
        if self._structure is None:
            self._structure = structure
            self._traceable = [_can_trace_merge(state) for state in states]
        device, host = self._split(states)
        if self._on_device is None:
            self._on_device = device
        else:
            self._on_device = _merge_all(self._on_device, device)
        for leaf in jax.tree.leaves(host):
            if isinstance(leaf, jax.Array):
                leaf.copy_to_host_async()
        self._collect_late()
        self._late = host

    def result(self) -> AuxiliariesState | None:
        """The merged states; `None` if there was no batch."""
        if self._structure is None:
            return None
        self._collect_late()
        device, host = iter(self._on_device or ()), iter(self._on_host)
        states = [next(device if is_traced else host) for is_traced in self._traceable]
        return jax.tree.unflatten(self._structure, states)

    def _split(self, states: list[Any]) -> tuple[list[Any], list[Any]]:
        device = [s for s, is_traced in zip(states, self._traceable) if is_traced]
        host = [s for s, is_traced in zip(states, self._traceable) if not is_traced]
        return device, host

    def _collect_late(self) -> None:
        if not self._late:
            return
        if self._on_host:
            self._on_host = [a.merge(b) for a, b in zip(self._on_host, self._late)]
        else:
            self._on_host = self._late
        self._late = []


@jax.jit
def _merge_all(mine: list[Any], other: list[Any]) -> list[Any]:
    return [a.merge(b) for a, b in zip(mine, other)]


def _can_trace_merge(state: Any) -> bool:
    try:
        jax.eval_shape(lambda a, b: a.merge(b), state, state)
    except Exception:
        return False
    return True
