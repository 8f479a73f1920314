"""Summaries as files of arrays."""

from __future__ import annotations

import dataclasses
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from kauldron.contrib.train.queued_writer import QueuedWriter
from kauldron.utils.whole_files import write_atomically
from kauldron.writers.routing import route


@dataclasses.dataclass(frozen=True, kw_only=True)
class NpzWriter(QueuedWriter):
    """A `KDMetricWriter` that also saves the arrays of summaries, for `np.load`.

    At each step that writes summaries it writes
    `<workdir>/array_dumps/<collection>/<step>.npz`, if there is anything to save.

    Attributes:
      key_patterns: Regular expressions; summaries whose name (`summaries/<path>`)
        matches any of them are saved. `None` for all. Texts are never saved.
      save_scalars: Whether to save losses and metrics too.
      output_dir: The folder, instead of the one in the workdir.
      static_info: Arrays and numbers to put into every file.
    """

    key_patterns: Sequence[str] | None = None
    save_scalars: bool = False
    output_dir: epath.PathLike | None = None
    static_info: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.key_patterns, str):
            object.__setattr__(self, "key_patterns", (self.key_patterns,))
        for pattern in self.key_patterns or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"NpzWriter.key_patterns: {pattern!r} is no regular expression: "
                    f"{error}."
                ) from None

    def write_values(
        self, step: int, output: Any, *, log_summaries: bool, **kwargs: Any
    ) -> None:
        arrays = self._selected(output) if log_summaries else {}
        summaries = {
            name: value
            for name, value in output.summary_values.items()
            if name not in arrays or _can_be_shown(name, value)
        }
        super().write_values(
            step,
            output.replace(summary_values=summaries),
            log_summaries=log_summaries,
            **kwargs,
        )
        if arrays:
            arrays = {**arrays, **self.static_info}
            self._later(_save, self._path(step), arrays)

    def _selected(self, output: Any) -> dict[str, np.ndarray]:
        values = {
            name: value
            for name, value in output.summary_values.items()
            if self._matches(name) and isinstance(value, np.ndarray)
        }
        if self.save_scalars:
            values |= output.loss_values | output.metric_values
        arrays = {name: np.asarray(value) for name, value in values.items()}
        return {name: a for name, a in arrays.items() if a.dtype.kind not in "OUS"}

    def _matches(self, name: str) -> bool:
        patterns = self.key_patterns
        return patterns is None or any(re.search(p, name) for p in patterns)

    def _path(self, step: int) -> epath.Path:
        if self.output_dir is None:
            folder = epath.Path(self.workdir) / "array_dumps" / self.collection
        else:
            folder = epath.Path(self.output_dir)
        return folder / f"{step:09d}.npz"


def _can_be_shown(name: str, array: np.ndarray) -> bool:
    """Whether event files have a form for it; if not, the npz file is its place."""
    complaints: list[str] = []
    route({}, {name: array}, warn=complaints.append)
    return not complaints


def _save(path: epath.Path, arrays: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                array = _without_own_types(np.asanyarray(value))
                np.lib.format.write_array(file, array, allow_pickle=False)
    write_atomically(path, buffer.getvalue())


def _without_own_types(array: np.ndarray) -> np.ndarray:
    """bfloat16 and the small floats as float32: `np.load` does not know them."""
    is_own = array.dtype.kind == "V" and "float" in array.dtype.name
    return array.astype(np.float32) if is_own else array
