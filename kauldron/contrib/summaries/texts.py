"""Values and tokens as texts, in the log or among the summaries."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Int, typechecked
from kauldron.metrics import EMPTY, AutoState, Metric, truncate_field
from kauldron.metrics.state import State as BaseState
from kauldron.metrics.state import to_host


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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class ShowTokens(Metric):
    """The first sequences of tokens, such as a model has generated, as texts.

    Tokens are numbers, so that the step may be compiled; they become texts when the
    summary is written.

    Attributes:
      tokens: Integers of shape `*b t`.
      decode: From the tokens of one text, an array of shape `t`, to the text.
      num_texts: How many to keep; `None` keeps all.

    Example:
      >>> show = ShowTokens(decode=lambda tokens: bytes(tokens.tolist()).decode())
      >>> show(tokens=np.array([[104, 105], [33, 33]])).tolist()
      ['hi', '!!']
    """

    tokens: kontext.Key = kontext.REQUIRED
    decode: Callable[[np.ndarray], str]
    num_texts: int | None = 5

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["ShowTokens"]):
        """The kept tokens, `n t`."""

        tokens: Any = truncate_field(num_field="parent.num_texts")

        def compute(self) -> np.ndarray:
            texts = np.empty(len(self.tokens), dtype=object)
            texts[:] = [self.parent.decode(row) for row in np.asarray(self.tokens)]
            return texts

    @typechecked
    def get_state(self, tokens: Int["*b t"]) -> ShowTokens.State:
        flat = tokens.reshape(-1, tokens.shape[-1])
        return self.State(tokens=flat[: self.num_texts])
