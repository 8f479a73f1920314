"""`ROOT_CFG_REF`: a field's value, found in the root trainer once there is one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

# One step of the walk from the root: an attribute name, or an item's key in a 1-tuple.
_Step = str | tuple[Hashable]


class RootCfgRef:
    """A path from the root trainer to a value; attributes and items go deeper.

    Every public attribute is part of the path, so the functions on references are in
    this module and not methods.
    """

    __slots__ = ("_steps",)

    _steps: tuple[_Step, ...]

    def __init__(self, *steps: _Step):
        object.__setattr__(self, "_steps", steps)

    def __getattr__(self, name: str) -> Any:
        # `abc`, `inspect`, `copy` and others probe for private names.
        if name.startswith("_"):
            raise AttributeError(
                f"{self!r} has no attribute {name!r}: references reach public names only."
            )
        return RootCfgRef(*self._steps, name)

    def __getitem__(self, key: Hashable) -> Any:
        return RootCfgRef(*self._steps, (key,))

    __iter__ = None
    __contains__ = None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self!r} is a reference and cannot be assigned to.")

    def __set_name__(self, owner: type, name: str) -> None:
        if not hasattr(owner, "update_from_root_cfg"):
            raise TypeError(
                f"`{owner.__qualname__}.{name} = {self!r}` would never be filled in: "
                f"{owner.__qualname__} has to inherit from "
                "`kd.utils.config_util.UpdateFromRootCfg`."
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RootCfgRef) and self._steps == other._steps

    def __hash__(self) -> int:
        return hash((RootCfgRef, self._steps))

    def __reduce__(self) -> tuple[type[RootCfgRef], tuple[_Step, ...]]:
        return RootCfgRef, self._steps

    def __repr__(self) -> str:
        parts = (f".{s}" if isinstance(s, str) else f"[{s[0]!r}]" for s in self._steps)
        return "ROOT_CFG_REF" + "".join(parts)

    def __konfig_export__(self) -> dict[str, Any]:
        steps = {str(i): step for i, step in enumerate(self._steps)}
        return {"__qualname__": f"{__name__}:RootCfgRef", **steps}


ROOT_CFG_REF: Any = RootCfgRef()
"""Stands for the root trainer: `ROOT_CFG_REF.seed`, `ROOT_CFG_REF.aux["lr"]`."""


def find_in_root(reference: RootCfgRef, root: Any) -> Any:
    """Walk from the root to what the reference points to."""
    value = root
    for step in reference._steps:
        value = getattr(value, step) if isinstance(step, str) else value[step[0]]
    return value
