"""The trainer of a readout: made from its config and the outer trainer's model."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp

from kauldron import ckpts, konfig, kontext, writers

if TYPE_CHECKING:
    from kauldron.train import Trainer, TrainState

_NOT_OF_THE_READOUT = ("writer", "profiler", "init_transform")


def make(
    readout: konfig.ConfigDict | Trainer,
    *,
    outer: Trainer,
    path: str,
    overrides: Mapping[str, Any],
    readout_inputs: Any,
) -> Trainer:
    """The readout's trainer, with the outer model in its place.

    Args:
      readout: Its config, or the trainer itself.
      outer: The trainer whose model is evaluated.
      path: Where in the readout the outer model goes.
      overrides: Values to set below the outer model, by path (configs only).
      readout_inputs: Replaces `model.readout_inputs`, if given.
    """
    if not isinstance(readout, konfig.ConfigDict):
        return _with_outer_model(readout.replace(profiler=None), path, outer)
    # Through JSON, so that references to other parts of the outer config are values.
    cfg = konfig.ConfigDict.from_json(readout.to_json())
    for name in _NOT_OF_THE_READOUT:
        cfg[name] = None
    konfig.get_by_path(cfg, path)  # it must exist
    if readout_inputs is not None:
        cfg.model.readout_inputs = readout_inputs
    if outer.raw_cfg is None:
        return _with_outer_model(konfig.resolve(cfg), path, outer)
    model = konfig.ConfigDict.from_json(outer.raw_cfg.to_json()).model
    konfig.set_by_path(cfg, path, model)
    for below, value in overrides.items():
        konfig.set_by_path(cfg, f"{path}.{below}", value)
    return konfig.resolve(cfg)


def _with_outer_model(trainer: Trainer, path: str, outer: Trainer) -> Trainer:
    """Put the model itself in its place, where there is no config of it."""
    tree = {"model": trainer.model}
    kontext.get_by_path(tree, path)  # it must exist
    return trainer.replace(**kontext.replace_by_path(tree, path, outer.model))


@dataclasses.dataclass(frozen=True)
class OuterWeights(ckpts.InitTransform):
    """Puts the weights of the outer model into the state of the readout.

    The weights change with each evaluation. They are no part of what compiled functions
    depend on: the object stays the same.

    Attributes:
      path: Path of the outer model in the readout's trainer.
    """

    path: str
    _state: list[TrainState] = dataclasses.field(
        default_factory=list, init=False, compare=False, repr=False
    )

    @contextlib.contextmanager
    def of(self, state: TrainState) -> Iterator[None]:
        """Inside, readouts start with the weights of this state."""
        self._state.append(state)
        try:
            yield
        finally:
            self._state.pop()

    def transform(self, state: Any) -> Any:
        outer = self._state[-1]
        path = kontext.Path.from_str(self.path)[1:]
        inner = kontext.get_by_path(state.params, path) if path else state.params
        _check_same_shapes(inner, outer.params, self.path)
        state = state.replace(params=_put(state.params, path, outer.params))
        collections = dict(state.collections or {})
        for name, value in (outer.collections or {}).items():
            if name in collections:
                collections[name] = _put(collections[name], path, value)
        return state.replace(collections=collections)


def _put(tree: Any, path: kontext.Path, value: Any) -> Any:
    """The tree with a copy of the value at a path: training frees what it is given."""
    value = jax.tree.map(jnp.copy, value)
    return kontext.replace_by_path(tree, path, value) if path else value


def _check_same_shapes(inner: Any, outer: Any, path: str) -> None:
    specs = [
        {
            str(kontext.Path.from_jax_path(place)): (leaf.shape, str(leaf.dtype))
            for place, leaf in jax.tree_util.tree_leaves_with_path(tree)
        }
        for tree in (inner, outer)
    ]
    different = {
        place: tuple(spec.get(place, "nothing") for spec in specs)
        for place in {**specs[0], **specs[1]}
        if specs[0].get(place) != specs[1].get(place)
    }
    if different:
        lines = [f"  {place}: {a} and {b}" for place, (a, b) in different.items()]
        raise ValueError(
            f"The parameters at {path!r} of the readout are not those of the outer model:"
            "\n" + "\n".join(lines)
        )


#
# Curves
#


def curves_writer(writer: writers.WriterBase, *, collection: str) -> writers.WriterBase:
    """A writer for a trainer whose values go to another run, under another name."""
    return _OtherRunWriter(writers=(writers.with_collection(writer, collection),))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OtherRunWriter(writers.MultiWriter):
    """Keeps workdir and collection of its writers, whatever the trainer says."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "writers", tuple(self.writers))

    def update_from_root_cfg(self, root: Any) -> Self:
        del root
        return self
