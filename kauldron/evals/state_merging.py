"""States of many batches into one, without waiting for the device."""

from __future__ import annotations

from typing import Any

import jax

from kauldron import metrics
from kauldron.metrics.collected import start_copy, to_host
from kauldron.train.auxiliaries import AuxiliariesState
from kauldron.utils.error_context import error_prefix

State = metrics.State
States = dict[str, Any]


class MergePlan:
    """Which states of an evaluator merge on the device; found out once.

    Attributes:
      is_stable: Whether the merged states that are on the device have the same shapes
        and dtypes as those of one batch.
    """

    def __init__(self, aux: AuxiliariesState):
        """Look at the states of a first batch, or at their specs."""
        pairs, self._structure = jax.tree_util.tree_flatten_with_path(
            aux, is_leaf=State.isinstance
        )
        self._names = ["/".join(str(_key(part)) for part in path) for path, _ in pairs]
        self._on_device = [_merges_on_device(state) for _, state in pairs]
        self.is_stable = all(_is_stable(s) for s in self.split(aux)[0].values())

    def split(self, aux: AuxiliariesState) -> tuple[States, States]:
        """States by name: those that merge on the device, and the others."""
        states = self._structure.flatten_up_to(aux)
        device: States = {}
        host: States = {}
        for name, state, on_device in zip(self._names, states, self._on_device):
            (device if on_device else host)[name] = state
        return device, host

    def join(self, states: States) -> AuxiliariesState:
        """The states in their places again."""
        return self._structure.unflatten([states[name] for name in self._names])


class StateMerger:
    """Merges on the device what can be traced, and on the host what collects.

    What collects receives each batch's arrays one batch late: their copy to the host
    runs while the next batch is computed.
    """

    def __init__(self, plan: MergePlan | None = None):
        self.plan = plan
        self._device: States | None = None
        self._host: States = {}
        self._late: dict[str, tuple[State, int]] = {}

    def start_from(self, plan: MergePlan, aux: AuxiliariesState) -> None:
        """Continue with states that were merged before, and are on the host."""
        self.plan = plan
        self._device, self._host = plan.split(aux)

    def add(self, aux: AuxiliariesState) -> None:
        """Take the states of one more batch."""
        if self.plan is None:
            self.plan = MergePlan(aux)
        device, host = self.plan.split(aux)
        if self._device is None or not device:
            self._device = device
        else:
            self._device = merge_all(self._device, device)
        self.add_on_host(host, 1)

    def set_on_device(self, merged: States) -> None:
        """Take what somebody else has merged of what merges on the device."""
        self._device = merged

    def result(self) -> AuxiliariesState | None:
        """The merged states; `None` if there was no batch."""
        if self.plan is None or self._device is None:
            return None
        self._collect_late()
        return self.plan.join({**self._device, **self._host})

    def add_on_host(self, host: States, size: int) -> None:
        """Take the states of new batches that merge on the host.

        Args:
          host: The states; with `size > 1`, those of all batches stacked.
          size: Number of batches.
        """
        self._collect_late()
        for name, state in host.items():
            with error_prefix(f"Merging {name}: "):
                one = state if size == 1 else _item(state, 0)
                is_needed = name not in self._host or _adds(self._host[name], one)
            if is_needed:
                start_copy(state)
                self._late[name] = (state, size)

    def _collect_late(self) -> None:
        """Merge what was copied meanwhile; its memory on the device is free then."""
        for name, (late, size) in self._late.items():
            late = to_host(late)
            for state in [late] if size == 1 else [_item(late, i) for i in range(size)]:
                with error_prefix(f"Merging {name}: "):
                    before = self._host.get(name)
                    self._host[name] = state if before is None else before.merge(state)
        self._late = {}


@jax.jit
def merge_all(mine: States, other: States) -> States:
    """Merge states by name, on the device."""
    merged = {}
    for name, state in mine.items():
        with error_prefix(f"Merging {name}: "):
            merged[name] = state.merge(other[name])
    return merged


def _merges_on_device(state: State) -> bool:
    """Whether it merges inside `jit`, and does not grow by that."""
    try:
        once = jax.eval_shape(_merge, state, state)
        return _shapes(once) == _shapes(jax.eval_shape(_merge, once, state))
    except Exception:  # merging on the host works, or says what is wrong
        return False


def _is_stable(state: State) -> bool:
    return _shapes(jax.eval_shape(_merge, state, state)) == _shapes(state)


def _merge(a: State, b: State) -> State:
    return a.merge(b)


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


def _item(stacked: State, index: int) -> State:
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def _key(part: Any) -> Any:
    return getattr(part, "key", getattr(part, "name", part))
