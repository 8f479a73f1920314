"""States of many batches into one, without waiting for the device."""

from __future__ import annotations

from typing import Any

import jax

from kauldron import metrics
from kauldron.errors import error_prefix
from kauldron.metrics.state import merges_on_device, start_copy, to_host
from kauldron.train.auxiliaries import AuxiliariesState

State = metrics.State
States = dict[str, Any]


class MergePlan:
    """Which states of an evaluator merge on the device; found out once."""

    def __init__(self, aux: AuxiliariesState):
        """Look at the states of a first batch, or at their specs."""
        pairs, self._structure = jax.tree_util.tree_flatten_with_path(
            aux, is_leaf=State.isinstance
        )
        self._names = ["/".join(str(_key(part)) for part in path) for path, _ in pairs]
        self._on_device = [merges_on_device(state, state) for _, state in pairs]

    def split(self, aux: AuxiliariesState) -> tuple[States, States]:
        """States by name: those that merge on the device, and the others."""
        states = self._structure.flatten_up_to(aux)
        device: States = {}
        host: States = {}
        for name, state, on_device in zip(self._names, states, self._on_device):
            (device if on_device else host)[name] = state
        return device, host

    def join(self, states: States) -> AuxiliariesState:
        """Return the states in their places again."""
        return self._structure.unflatten([states[name] for name in self._names])


class StateMerger:
    """Merges the states of batches, where the plan says."""

    def __init__(self, plan: MergePlan | None = None):
        self.plan = plan
        self._device: States | None = None
        self._host = HostMerger()

    def start_from(self, plan: MergePlan, aux: AuxiliariesState) -> None:
        """Continue with states that were merged before, and are on the host."""
        self.plan = plan
        self._device, host = plan.split(aux)
        self._host = HostMerger(host)

    def add(self, aux: AuxiliariesState) -> None:
        """Take the states of one more batch."""
        if self.plan is None:
            self.plan = MergePlan(aux)
        device, host = self.plan.split(aux)
        self._device = metrics.merge_states(self._device, device)
        self._host.add(host)

    def result(self) -> AuxiliariesState | None:
        """Return the merged states; `None` if there was no batch."""
        if self.plan is None or self._device is None:
            return None
        return self.plan.join({**self._device, **self._host.result()})


class HostMerger:
    """Merges on the host, without waiting for the batch that is being computed.

    It takes the arrays of each batch one batch late: their copy to the host runs while
    the next batch is computed.
    """

    def __init__(self, merged: States | None = None):
        self._merged = merged or {}
        self._late: dict[str, tuple[State, int]] = {}

    def add(self, states: States, size: int = 1) -> None:
        """Take the states of new batches.

        Args:
          states: By name; with `size > 1`, those of all batches stacked.
          size: Number of batches.
        """
        self._collect_late()
        for name, state in states.items():
            with error_prefix(f"Merging {name}: "):
                one = state if size == 1 else _item(state, 0)
                is_needed = name not in self._merged or _adds(self._merged[name], one)
            if is_needed:
                start_copy(state)
                self._late[name] = (state, size)

    def result(self) -> States:
        """Return the merged states, by name."""
        self._collect_late()
        return self._merged

    def _collect_late(self) -> None:
        """Merge what was copied meanwhile; its memory on the device is free then."""
        for name, (late, size) in self._late.items():
            late = to_host(late)
            for state in [late] if size == 1 else [_item(late, i) for i in range(size)]:
                with error_prefix(f"Merging {name}: "):
                    before = self._merged.get(name)
                    self._merged[name] = (
                        state if before is None else before.merge(state)
                    )
        self._late = {}


def _adds(collected: State, state: Any) -> bool:
    """Return whether merging changes what is collected, so that arrays must travel."""
    if not isinstance(collected, metrics.AutoState):
        return True
    merged = collected.merge(state)
    return any(
        value is not getattr(collected, name) for name, value in vars(merged).items()
    )


def _item(stacked: State, index: int) -> State:
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def _key(part: Any) -> Any:
    return getattr(part, "key", getattr(part, "name", part))
