"""States of many batches into one, without waiting for the device."""

from __future__ import annotations

from typing import Any

import jax

from kauldron import metrics
from kauldron.metrics.collected import start_copy, to_host
from kauldron.train.auxiliaries import AuxiliariesState
from kauldron.utils.error_context import error_prefix

State = metrics.State


class MergePlan:
    """Which states of an evaluator merge on the device; found out once."""

    def __init__(self, aux: AuxiliariesState):
        """Look at the states of a first batch."""
        pairs, self.structure = jax.tree_util.tree_flatten_with_path(
            aux, is_leaf=State.isinstance
        )
        self.names = ["/".join(str(_key(part)) for part in path) for path, _ in pairs]
        self._on_device = [_merges_on_device(state) for _, state in pairs]

    def split(self, aux: AuxiliariesState) -> tuple[dict[str, Any], dict[str, Any]]:
        """States by name: those that merge on the device, and the others."""
        states = self.structure.flatten_up_to(aux)
        device: dict[str, Any] = {}
        host: dict[str, Any] = {}
        for name, state, on_device in zip(self.names, states, self._on_device):
            (device if on_device else host)[name] = state
        return device, host

    def join(self, states: dict[str, Any]) -> AuxiliariesState:
        """The states in their places again."""
        return self.structure.unflatten([states[name] for name in self.names])


class StateMerger:
    """Merges on the device what can be traced, and on the host what collects.

    What collects receives each batch's arrays one batch late: their copy to the host
    runs while the next batch is computed.
    """

    def __init__(self, plan: MergePlan | None = None):
        self.plan = plan
        self._device: dict[str, Any] | None = None
        self._host: dict[str, Any] = {}
        self._late: dict[str, Any] = {}

    def start_from(self, plan: MergePlan, aux: AuxiliariesState) -> None:
        """Continue with states that were merged before, and are on the host."""
        self.plan = plan
        self._device, self._host = plan.split(aux)

    def add(self, aux: AuxiliariesState) -> None:
        """Take the states of one more batch."""
        if self.plan is None:
            self.plan = MergePlan(aux)
        device, host = self.plan.split(aux)
        if self._device is None:
            self._device = device
        else:
            self._device = _merge_on_device(self._device, device)
        self._collect_late()
        for name, state in host.items():
            with error_prefix(f"Merging {name}: "):
                is_needed = name not in self._host or _adds(self._host[name], state)
            if is_needed:
                start_copy(state)
                self._late[name] = state

    def result(self) -> AuxiliariesState | None:
        """The merged states; `None` if there was no batch."""
        if self.plan is None or self._device is None:
            return None
        self._collect_late()
        return self.plan.join({**self._device, **self._host})

    def _collect_late(self) -> None:
        """Merge what was copied meanwhile; its memory on the device is free then."""
        for name, state in self._late.items():
            state = to_host(state)
            if name in self._host:
                with error_prefix(f"Merging {name}: "):
                    state = self._host[name].merge(state)
            self._host[name] = state
        self._late = {}


@jax.jit
def _merge_all(mine: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    merged = {}
    for name, state in mine.items():
        with error_prefix(f"Merging {name}: "):
            merged[name] = state.merge(other[name])
    return merged


def _merge_on_device(mine: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return _merge_all(mine, other) if mine else mine


def _merges_on_device(state: State) -> bool:
    """Whether it merges inside `jit`, and does not grow by that."""

    def merge(a: State, b: State) -> State:
        return a.merge(b)

    try:
        once = jax.eval_shape(merge, state, state)
        return _shapes(once) == _shapes(jax.eval_shape(merge, once, state))
    except Exception:  # merging on the host works, or says what is wrong
        return False


def _shapes(state: State) -> Any:
    leaves, structure = jax.tree.flatten(state)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _adds(collected: State, state: Any) -> bool:
    """Whether merging changes what is collected, so that the arrays must travel."""
    if not isinstance(collected, metrics.AutoState):
        return True
    merged = collected.merge(state)
    return any(
        value is not getattr(collected, name) for name, value in vars(merged).items()
    )


def _key(part: Any) -> Any:
    return getattr(part, "key", getattr(part, "name", part))
