"""Older module paths that other code and pickles name, each with what it held.

Importing one gives a module that looks its names up where they live now.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

_SPEC = "ShapeSpec IntDim NamedDims AnonDims OptionalDim ChoiceDim BinaryOpDim"
_MARKERS = "NpArray JaxArray TfArray TorchArray ScalarLike ArraySpecLike"

# From module path to where its names live now; `old=new` where a name changed as well.
_MODULES: dict[str, dict[str, str]] = {
    "array_classes": {"values": _MARKERS},
    "decorator": {"checks": "typechecked"},
    "dim_view": {"dims": "DimView dim"},
    "frame_utils": {"errors": "NoActiveScopeError"},
    "internal_typing": {
        "config": "MISSING Missing",
        "scopes": "DimValues",
        "shapes.sizes": "UNKNOWN_DIM UnknownDim is_symbolic_dim=is_symbolic",
    },
    "missing": {"config": "MISSING Missing"},
    "pytree": {"array_type_meta": "PyTree is_pytree_type"},
    "pytree_type": {"array_type_meta": "PyTree make_pytree_type"},
    "scope": {"scopes": "ShapeScope TransparentScope", "dims": "get_current_scope"},
    "shape_spec": {
        "shapes.spec": f"{_SPEC} FunctionDim NegatedDim DimSpec=Dim OPERATORS",
        "shapes.sizes": "ShapeError UNKNOWN_DIM",
    },
    "shape_spec_parser": {
        "shapes.parsing": "parse ShapeSpecSyntaxError WhiteSpaceError InvalidCommaError "
        "PostModifierError AnonymousFixedDimError AnonymousBroadcastableDimError"
    },
    "shape_tools": {"dims": "shape"},
    "shape_type": {"array_type_meta": "Shape _make=make_shape_type"},
    "typeguard_checkers": {
        "checks": "check_type isinstance_",
        "errors": "TypeCheckError",
    },
    "utils": {
        "values": "format_value get_dtype_str=short_dtype",
        "scopes": "CodeLocation",
        "annotations": "contains_jaxtyping_type=contains_jaxtyping",
    },
}


class _OlderModule(types.ModuleType):
    def __init__(self, name: str, homes: dict[str, str]):
        super().__init__(f"kauldron.ktyping.{name}", doc="An older module path.")
        entries = [(e, home) for home, names in homes.items() for e in names.split()]
        self._homes = {e.partition("=")[0]: (home, e) for e, home in entries}

    def __getattr__(self, name: str) -> Any:
        if name not in self._homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home, entry = self._homes[name]
        module = importlib.import_module(f"kauldron.ktyping.{home}")
        return getattr(module, entry.rpartition("=")[2])

    def __dir__(self) -> list[str]:
        return sorted(self._homes)


for _name, _homes in _MODULES.items():
    sys.modules[f"kauldron.ktyping.{_name}"] = _OlderModule(_name, _homes)
