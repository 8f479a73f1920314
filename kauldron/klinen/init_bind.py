"""`init_bind`: from a module and example inputs to a bound model."""

from __future__ import annotations

from typing import Any, TypeVar

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.core import freeze

from kauldron.klinen import errors
from kauldron.klinen.bound import bind
from kauldron.klinen.definitions import (
    Blueprint,
    Location,
    Method,
    call_method,
    copy_definition,
    map_structure,
)
from kauldron.klinen.intermediate_fields import COLLECTION
from kauldron.klinen.module import Module
from kauldron.klinen.rngs import check_streams, init_rngs
from kauldron.klinen.training_mode import use_mode
from kauldron.klinen.variables import CodedTree
from kauldron.klinen.view import Root, View

_M = TypeVar("_M", bound=Module)


def init_bind(
    module: _M,
    rng: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    streams: tuple[str, ...],
    method: Method,
) -> _M:
    """See `Module.init_bind`."""
    streams = check_streams(streams)
    rngs = init_rngs(rng, streams)
    args, kwargs = make_examples(args, kwargs)
    definition = copy_definition(module)

    def call(scoped: nn.Module) -> None:
        try:
            call_method(scoped, method, args, kwargs)
        except errors.MissingRngError:
            raise  # of another model, called inside this one
        except flax.errors.InvalidRngError as error:
            raise errors.missing_init_rng(error, rngs) from error

    with use_mode(True):
        variables = dict(nn.init(call, definition)(rngs))
    variables.pop(COLLECTION, None)
    params = freeze(variables.pop("params", {}))
    root = Root(
        blueprint=Blueprint(definition),
        params=params,
        collections=CodedTree({name: freeze(v) for name, v in variables.items()}),
        rngs=CodedTree({}),
        training=True,
        streams=streams,
    )
    return bind(View(root=root, location=(), path=(), definition=definition))


#
# Example inputs: arrays, or specs of them
#


def make_examples(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn specs among the arguments into zeros, and float64 arrays into float32.

    A spec is anything that has a shape and a dtype but no data. Other values are passed
    on untouched.

    Example:
      >>> make_examples((jax.ShapeDtypeStruct((2,), jnp.int32), "text"), {"n": 3})
      ((Array([0, 0], dtype=int32), 'text'), {'n': 3})
    """
    return map_structure(_as_example, args), map_structure(_as_example, kwargs)


def _as_example(value: Any, location: Location) -> Any:
    if _is_spec(value):
        return _zeros(value, location)
    if isinstance(value, np.ndarray | np.generic) and value.dtype == np.float64:
        return value.astype(_float64_dtype())
    if isinstance(value, nn.Module) or jax.tree_util.all_leaves([value]):
        return value
    # Some other pytree, such as a dataclass that is registered with JAX.
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _as_example(leaf, (*location, jax.tree_util.keystr(path))),
        value,
        is_leaf=lambda leaf: leaf is not value and _is_spec(leaf),
    )


def _is_spec(value: Any) -> bool:
    """Return whether this only describes an array."""
    shape = getattr(value, "shape", None)
    if shape is None or getattr(value, "dtype", None) is None:
        return False
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return False
    if not isinstance(value, type) and hasattr(value, "__array__"):
        return False  # the tensor of another library
    return isinstance(shape, tuple | list | str) or hasattr(shape, "as_list")


def _zeros(spec: Any, location: Location) -> jax.Array:
    shape = spec.shape
    if isinstance(shape, str):  # `f32["3 2"]` of etils
        sizes = [int(size) if size.isdigit() else None for size in shape.split()]
    elif hasattr(shape, "as_list"):  # TensorFlow
        sizes = shape.as_list() if shape.rank is not None else [None]
    else:
        sizes = list(shape)
    if None in sizes:
        raise ValueError(
            f"`init_bind` needs to know all sizes, but the shape of {_display(location)} "
            f"is {shape}. Give an array, or a spec without unknown dimensions."
        )
    return jnp.zeros(sizes, _numpy_dtype(spec.dtype))


def _numpy_dtype(dtype: Any) -> np.dtype:
    for attribute in ("np_dtype", "as_numpy_dtype"):  # etils, TensorFlow
        dtype = getattr(dtype, attribute, dtype)
    dtype = np.dtype(dtype)
    return _float64_dtype() if dtype == np.float64 else dtype


def _float64_dtype() -> np.dtype:
    return jax.dtypes.canonicalize_dtype(np.float64)


def _display(location: Location) -> str:
    first, *rest = location
    name = f"argument {first}" if isinstance(first, int) else f"argument {first!r}"
    items = "".join(r if str(r).startswith(("[", ".")) else f"[{r!r}]" for r in rest)
    return f"{name}, at {items}," if rest else name
