"""Named streams of random keys, the same on every host and after every restart."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, Literal

import jax

from kauldron import config_base
from kauldron.random import fold_in_str

Key = Any  # An old-style `uint32[2]` key.


@dataclasses.dataclass(frozen=True)
class RngStream:
    """One named stream.

    Attributes:
      name: What `self.make_rng(name)` asks for inside a model.
      init: Whether the model gets a key of it at initialisation.
      train: Whether it gets one in training steps.
      eval: Whether it gets one in evaluation.
      per_step: Whether each step has a key of its own.
    """

    name: str
    _: dataclasses.KW_ONLY
    init: bool = True
    train: bool = True
    eval: bool = False
    per_step: bool = True

    def make(
        self, rng: Key, *, step: int | jax.Array | None = None, key: str | None = None
    ) -> Key:
        """Derive this stream's key.

        Args:
          rng: The root key.
          step: Needed by per-step streams; may be traced.
          key: The phase: `"init"`, `"train"` or `"eval"`.

        Returns:
          The key after folding in the name, the step and the phase.
        """
        rng = fold_in_str(rng, self.name)
        if self.per_step:
            if step is None:
                raise ValueError(
                    f"The rng stream {self.name!r} has a key per step: pass `step=`."
                )
            rng = jax.random.fold_in(rng, step)
        return rng if key is None else fold_in_str(rng, key)


_DEFAULT_STREAMS = (
    RngStream("params", train=False, per_step=False),
    RngStream("dropout"),
    RngStream("default"),
)


@dataclasses.dataclass(frozen=True)
class RngStreams(config_base.UpdateFromRootCfg):
    """The random streams of an experiment.

    `params` (initialisation only), `dropout` and `default` (initialisation and
    training) are always there. A stream given here is added; one of the same name
    replaces the default as a whole.

    Attributes:
      stream_overwrites: Streams to add or replace.
      seed: The trainer's seed, unless set.

    Example:
      >>> streams = RngStreams([RngStream("noise", eval=True)], seed=0)
      >>> sorted(streams.train_rngs(step=3))
      ['default', 'dropout', 'noise']
      >>> sorted(streams.eval_rngs(step=3))
      ['noise']
    """

    stream_overwrites: Iterable[RngStream] = ()
    _: dataclasses.KW_ONLY
    seed: int = config_base.ROOT_CFG_REF.seed

    def __post_init__(self) -> None:
        overwrites = tuple(self.stream_overwrites)
        names = [stream.name for stream in overwrites]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(
                "RngStreams: the names of streams must differ; given more than once: "
                f"{', '.join(repeated)}."
            )
        object.__setattr__(self, "stream_overwrites", overwrites)

    @functools.cached_property
    def streams(self) -> dict[str, RngStream]:
        """All streams by name, defaults first."""
        return {s.name: s for s in (*_DEFAULT_STREAMS, *self.stream_overwrites)}

    @property
    def root_rng(self) -> Key:
        """The key that all others derive from."""
        self._assert_root_cfg_resolved()
        if self.seed is None:
            raise ValueError("RngStreams.seed is None: set it, or the trainer's seed.")
        return jax.random.PRNGKey(self.seed)

    def init_rngs(self) -> dict[str, Key]:
        """Return keys for `model.init`."""
        return self._make("init", 0)

    def train_rngs(self, step: int | jax.Array = 0) -> dict[str, Key]:
        """Return keys for the training step number `step` (which may be traced)."""
        return self._make("train", step)

    def eval_rngs(self, step: int | jax.Array = 0) -> dict[str, Key]:
        """Return keys for the evaluation batch number `step` (which may be traced)."""
        return self._make("eval", step)

    def _make(
        self, phase: Literal["init", "train", "eval"], step: int | jax.Array
    ) -> dict[str, Key]:
        return {
            name: stream.make(self.root_rng, step=step, key=phase)
            for name, stream in self.streams.items()
            if getattr(stream, phase)
        }
