"""Learn the shapes and shardings of a function's results without running it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Jaxpr, Literal
from jax.sharding import Sharding

from kauldron.sharding import device_mesh
from kauldron.sharding.shape_structs import replace_shape_dtype_struct


def eval_shape_with_sharding(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`jax.eval_shape` whose structs know their sharding.

    Compiles `fn` only if there are several devices and some result was not given a
    sharding by a constraint inside `fn`.

    Args:
      fn: Function of arrays.
      *args: Arrays or `jax.ShapeDtypeStruct`s.
      **kwargs: Likewise.

    Returns:
      The tree of results as `jax.ShapeDtypeStruct`s.
    """
    traced = jax.jit(fn).trace(*args, **kwargs)
    structs, structure = jax.tree.flatten(traced.out_info)
    if jax.device_count() == 1:
        shardings: list[Any] = [device_mesh.REPLICATED] * len(structs)
    else:
        shardings = _constraints_of_results(traced.jaxpr.jaxpr)
        if None in shardings:
            compiled = traced.lower().compile()
            shardings = jax.tree.leaves(compiled.output_shardings)
    return jax.tree.unflatten(
        structure,
        [replace_shape_dtype_struct(s, sharding=x) for s, x in zip(structs, shardings)],
    )


def _constraints_of_results(jaxpr: Jaxpr) -> list[Sharding | None]:
    """The sharding that a constraint gave to each result, where one did."""
    made_by = {}
    for equation in jaxpr.eqns:
        for position, variable in enumerate(equation.outvars):
            made_by[variable] = (equation, position)
    return [_constraint_of(variable, made_by) for variable in jaxpr.outvars]


def _constraint_of(variable: Any, made_by: dict[Any, Any]) -> Sharding | None:
    if isinstance(variable, Literal) or variable not in made_by:
        return None
    equation, position = made_by[variable]
    if equation.primitive.name == "sharding_constraint":
        is_partial = equation.params.get("unconstrained_dims")
        return None if is_partial else equation.params["sharding"]
    if equation.primitive.name in ("jit", "pjit"):
        return _constraints_of_results(equation.params["jaxpr"].jaxpr)[position]
    return None
