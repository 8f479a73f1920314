"""Weights from files of other tools: safetensors, and flax's msgpack."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from etils import epath

from kauldron.ckpts import structure
from kauldron.ckpts.mapped_loader import MappedLoader
from kauldron.ckpts.safetensors_file import SafetensorsFile
from kauldron.ckpts.structure import LeafPath
from kauldron.konfig.immutabledict import ImmutableDict

_ALL_TO_PARAMS = ImmutableDict({"params": ""})


@dataclasses.dataclass(frozen=True, kw_only=True)
class SafetensorsLoader(MappedLoader):
    """Loads arrays of a safetensors file into the initial state.

    The names in the file are split at dots: `encoder.dense.kernel` is the leaf `kernel`
    of the sub-tree `encoder.dense`. Only the arrays that are needed are read.

    Attributes:
      path: The file.
      new_to_old: From path in the new state to path in the file.
      separator: What the parts of a name are joined by in the file.
    """

    path: epath.PathLike
    new_to_old: Mapping[str, str] = _ALL_TO_PARAMS
    separator: str = "."

    def _open(self, *, is_continued: bool) -> _FileSource:
        file = SafetensorsFile(epath.Path(self.path))
        tree: dict[str, Any] = {}
        for name, array in file.arrays.items():
            *parents, last = name.split(self.separator)
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
                if not isinstance(node, dict):
                    raise ValueError(
                        f"{self.path} has an array {name!r} below another array: set "
                        "another `separator`."
                    )
            node[last] = array
        return _FileSource(str(self.path), tree)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MsgpackLoader(MappedLoader):
    """Loads arrays of a file written with `flax.serialization.to_bytes`.

    Attributes:
      path: The file.
      new_to_old: From path in the new state to path in the file. For a file of all
        variables of a model: `{"params": "params"}`.
    """

    path: epath.PathLike
    new_to_old: Mapping[str, str] = _ALL_TO_PARAMS

    def check(self, state: Any = None) -> None:
        epath.Path(self.path).stat()  # to open the file is to read all of it
        if state is not None:
            super().check(state)

    def _open(self, *, is_continued: bool) -> _FileSource:
        from flax import serialization

        data = epath.Path(self.path).read_bytes()
        try:
            tree = serialization.msgpack_restore(data)
        except Exception as error:
            raise ValueError(
                f"{self.path} is no msgpack file of flax: {error}"
            ) from error
        return _FileSource(str(self.path), tree)


@dataclasses.dataclass(frozen=True)
class _FileSource:
    """A tree of arrays that can be had on the host.

    Attributes:
      name: The file.
      tree: Nested dicts.
    """

    name: str
    tree: Any

    @functools.cached_property
    def _leaves(self) -> dict[LeafPath, Any]:
        return structure.flatten(self.tree)

    def read(self, wanted: Mapping[LeafPath, Any]) -> Mapping[LeafPath, Any]:
        return {
            path: _put(np.asarray(self._leaves[path]), like)
            for path, like in wanted.items()
        }


def _put(array: np.ndarray, like: Any) -> Any:
    """The array in the dtype and on the devices of another."""
    if not hasattr(like, "dtype"):
        return array.item()
    array = array.astype(like.dtype)
    sharding = getattr(like, "sharding", None)
    if sharding is None:
        return array
    return jax.make_array_from_callback(
        array.shape, sharding, lambda index: array[index]
    )
