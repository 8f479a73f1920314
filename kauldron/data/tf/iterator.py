"""Iterators over `tf.data` pipelines that checkpoints can hold."""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from kauldron.data.iters import Iterator
from kauldron.data.transforms.values import tf


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TFDataIterator(Iterator):
    """A `tf.data.Iterator` whose elements are NumPy arrays.

    Attributes:
      source: The data set it iterates over.
      iter: The `tf.data.Iterator`.
    """

    iter: Any

    def __next__(self) -> Any:
        if self.__dict__.get("_is_closed"):
            raise ValueError("The iterator is closed: make a new one with `iter(ds)`.")
        return to_numpy(next(self.iter))

    def get_state(self) -> dict[str, Any]:
        """Return the position as TensorFlow writes it, shuffle buffer included."""
        from kauldron.data import checkpointing

        with tempfile.TemporaryDirectory() as directory:
            checkpointing.save_iterator(self.iter, directory)
            files = sorted(pathlib.Path(directory).iterdir())
            return {
                "tfdata": {
                    file.name: base64.b64encode(file.read_bytes()).decode()
                    for file in files
                }
            }

    def set_state(self, state: Mapping[str, Any]) -> None:
        from kauldron.data import checkpointing

        with tempfile.TemporaryDirectory() as directory:
            for name, content in state["tfdata"].items():
                path = pathlib.Path(directory) / pathlib.Path(name).name
                path.write_bytes(base64.b64decode(content))
            checkpointing.restore_iterator(self.iter, directory)

    def close(self) -> None:
        object.__setattr__(self, "_is_closed", True)

    def __kd_ocp_handlers__(self) -> Any:
        from kauldron.data import checkpointing

        return checkpointing.TFDataHandler()

    def __kd_ocp_save_args__(self) -> Any:
        from kauldron.data import checkpointing

        return checkpointing.TFDataArg(self.iter)

    __kd_ocp_restore_args__ = __kd_ocp_save_args__


def to_numpy(element: Any) -> Any:
    """Return the tensors of a tree as NumPy arrays."""
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), element)
