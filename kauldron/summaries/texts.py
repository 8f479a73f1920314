"""Texts: the first ones of what is evaluated."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.metrics.auto_state import AutoState, truncate_field
from kauldron.metrics.metric import Metric


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class ShowTexts(Metric):
    """The first texts, as an array of `str`.

    Texts cannot enter `jit`: use it where metrics are computed outside of a compiled
    step.

    Attributes:
      texts: A string, a sequence of strings, or an array of strings or bytes.
      num_texts: How many to keep; `None` keeps all.

    Example:
      >>> ShowTexts(num_texts=2)(texts=["one", b"two", "three"]).tolist()
      ['one', 'two']
    """

    texts: kontext.Key = kontext.REQUIRED
    num_texts: int | None = 5

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["ShowTexts"]):
        """The kept texts."""

        texts: Any = truncate_field(num_field="parent.num_texts")

        def compute(self) -> np.ndarray:
            return self.texts

    def get_state(self, texts: Any) -> ShowTexts.State:
        # Inside jit whatever jax makes is a tracer.
        if isinstance(jnp.zeros(()), jax.core.Tracer):
            raise RuntimeError(
                "ShowTexts cannot be used inside a jitted step: jax has no arrays of"
                " texts. Use it only in an evaluator that computes its metrics outside of"
                " jit."
            )
        if isinstance(texts, str | bytes):
            texts = [texts]
        flat = np.ravel(np.asarray(texts, dtype=object))[: self.num_texts]
        decoded = np.empty(len(flat), dtype=object)
        decoded[:] = [_decode(text) for text in flat]
        return self.State(texts=decoded)


def _decode(text: Any) -> str:
    if isinstance(text, bytes):
        return text.decode("utf-8", errors="replace")
    if isinstance(text, str):
        return str(text)
    raise TypeError(f"ShowTexts shows strings, but got {type(text).__qualname__}.")
