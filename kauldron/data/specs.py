"""Element specs: the shapes and dtypes of a batch, and their JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

from kauldron.data.engine import trees


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySpec:
    """Shape and dtype, equal to anything that has the same two.

    Attributes:
      shape: Sizes; `None` for one that is not known.
      dtype: numpy dtype. Strings and bytes of any width are `object`.

    Example:
      >>> ArraySpec((2, 3), "float32")
      ArraySpec(shape=(2, 3), dtype='float32')
      >>> ArraySpec((2,), "<U5") == np.array(["a", "b"])
      True
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype

    def __init__(self, shape: Any, dtype: Any):
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "dtype", spec_dtype(dtype))

    @classmethod
    def of(cls, array: Any) -> ArraySpec:
        """Return the spec of anything with a shape and a dtype."""
        return cls(array.shape, array.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __eq__(self, other: object) -> bool:
        shape, dtype = getattr(other, "shape", None), getattr(other, "dtype", None)
        if shape is None or dtype is None:
            return NotImplemented
        try:
            return tuple(shape) == self.shape and spec_dtype(dtype) == self.dtype
        except TypeError:  # a dtype that numpy does not know
            return False

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"ArraySpec(shape={self.shape}, dtype={str(self.dtype)!r})"

    def __konfig_export__(self) -> dict[str, Any]:
        return {
            "__qualname__": "kauldron.kd:data.ArraySpec",
            "shape": tuple(self.shape),
            "dtype": str(self.dtype),
        }


def spec_dtype(dtype: Any) -> np.dtype:
    """Return the dtype as specs have it: text of any width is `object`."""
    if isinstance(dtype, str) and hasattr(ml_dtypes, dtype):  # such as "bfloat16"
        return np.dtype(getattr(ml_dtypes, dtype))
    dtype = np.dtype(dtype)
    return np.dtype(object) if dtype.kind in "USTO" else dtype


def specs_of(batch: Any) -> Any:
    """Return the tree with arrays replaced by their specs; other leaves stay.

    >>> specs_of({"x": np.zeros((2, 3)), "n": 5})
    {'x': ArraySpec(shape=(2, 3), dtype='float64'), 'n': 5}
    """

    def spec(leaf: Any) -> Any:
        return ArraySpec.of(leaf) if trees.has_shape_and_dtype(leaf) else leaf

    return trees.map_leaves(spec, batch)


_QUALNAME = "__qualname__"


def spec_to_json(spec: Any) -> Any:
    """Return the JSON of a tree of specs.

    >>> spec_to_json({"x": ArraySpec((2, 3), "float32")})["0"][0][0]
    'x'
    """
    from kauldron import konfig

    return konfig.export(spec)


def spec_from_json(content: Any) -> Any:
    """Return the tree of specs in a JSON value.

    Reads what `spec_to_json` and `konfig.export` write, files in which leaves name
    `etils.enp.array_spec:ArraySpec`, and the older form in which a leaf is just
    `{"shape": [...], "dtype": ...}`. Reads data only: no name in it is imported.

    >>> spec_from_json({"x": {"shape": [2, 3], "dtype": "float32"}})
    {'x': ArraySpec(shape=(2, 3), dtype='float32')}
    """
    if isinstance(content, list):
        return [spec_from_json(item) for item in content]
    if not isinstance(content, dict):
        return content
    qualname = str(content.get(_QUALNAME, "")).replace(":", ".")
    if "shape" in content and "dtype" in content:
        if qualname and not qualname.endswith(".ArraySpec"):
            raise ValueError(f"{qualname!r} is not an array spec: {content}.")
        return ArraySpec(_sequence(content["shape"]), content["dtype"])
    if qualname in ("builtins.tuple", "builtins.list"):
        items = [spec_from_json(item) for item in content.get("0", [])]
        return tuple(items) if qualname.endswith("tuple") else items
    if qualname and not qualname.endswith((".dict", ".ImmutableDict")):
        raise ValueError(f"{qualname!r} has no place in an element spec: {content}.")
    pairs = content["0"] if qualname and "0" in content else content.items()
    pairs = pairs.items() if isinstance(pairs, dict) else pairs
    return {k: spec_from_json(v) for k, v in pairs if k != _QUALNAME}


def _sequence(shape: Any) -> list[Any]:
    return shape["0"] if isinstance(shape, dict) else shape
