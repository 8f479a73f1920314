"""Older module paths, which pickles and other code may name, and renamed functions."""

# ruff: noqa: F401

from kauldron.ktyping.array_type_meta import make_shape_type as _make
from kauldron.ktyping.checkers.annotations import (
    contains_jaxtyping as contains_jaxtyping_type,
)
from kauldron.ktyping.shapes.sizes import is_symbolic as is_symbolic_dim
from kauldron.ktyping.shapes.spec import Dim as DimSpec
from kauldron.ktyping.values import short_dtype as get_dtype_str
from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.ktyping",
    {
        "array_classes": "values",
        "decorator": "checks",
        "dim_view": "dims",
        "frame_utils": "errors",
        "internal_typing": "config scopes shapes.sizes compat",
        "missing": "config",
        "pytree": "array_type_meta",
        "pytree_type": "array_type_meta",
        "scope": "scopes dims",
        "shape_spec": "shapes.spec shapes.sizes compat",
        "shape_spec_parser": "shapes.parsing",
        "shape_tools": "dims",
        "shape_type": "array_type_meta compat",
        "typeguard_checkers": "checks errors",
        "utils": "values scopes checkers.annotations compat",
    },
)
