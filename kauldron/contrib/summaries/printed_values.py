"""Values in the log."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from kauldron import kontext
from kauldron.metrics import EMPTY, Metric
from kauldron.metrics.collected import to_host
from kauldron.metrics.state import State as BaseState


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Print(Metric):
    """Logs the first values of every array of a tree; nothing is written.

    Attributes:
      value: An array or a tree of arrays.
      first_n: How many values of each array to log.
    """

    value: kontext.Key = kontext.REQUIRED
    first_n: int = 5

    @flax.struct.dataclass(kw_only=True)
    class State(BaseState["Print"]):
        """The first values of each array of the first batch."""

        tree: Any = EMPTY

        @classmethod
        def empty(cls) -> Print.State:
            return cls()

        def merge(self, other: Print.State) -> Print.State:
            return other if self.tree is EMPTY else self

        def finalize(self) -> Print.State:
            return to_host(self)

        def compute(self) -> dict[str, Any]:
            values = {} if self.tree is EMPTY else self.tree
            for path, leaf in kontext.flatten_with_path(values).items():
                name = f"{self.parent.value}.{path}" if path else self.parent.value
                logging.getLogger(__name__).info("%s: %s", name, leaf)
            return {}

    def get_state(self, value: Any) -> Print.State:
        return self.State(
            tree=jax.tree.map(lambda leaf: jnp.ravel(leaf)[: self.first_n], value)
        )
