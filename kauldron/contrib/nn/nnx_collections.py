"""NNX modules as collections of variables, which is how linen and the trainer see models.

The collections are

    params                 the `nnx.Param`s, as nested dicts
    nnx
        graphdef           the structure of the module: no arrays
        rng_vars           keys and counts of its random streams
        attributes         all other variables, such as batch statistics

Their leaves are NNX variables, so that the path of a weight is `<module>.<name>.value`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from kauldron.random.prng_key import unwrap

#
# From a module to collections, and back
#


def split(module: nnx.Module) -> dict[str, Any]:
    """Return the collections of a module."""
    graphdef, params, rng_vars, attributes = nnx.split(
        module, nnx.Param, nnx.RngState, ...
    )
    _check_hashable(graphdef, module)
    rest = {
        "graphdef": graphdef,
        "rng_vars": _nested_dict(rng_vars),
        "attributes": _nested_dict(attributes),
    }
    return {"params": _nested_dict(params), "nnx": rest}


def merge(variables: Mapping[str, Any], rngs: Mapping[str, Any] | None) -> Any:
    """Return a module made from collections, which it shares no variables with.

    Random streams that `rngs` names start again from its key; others continue.
    """
    if "nnx" not in variables:
        raise ValueError(
            f"There is no collection 'nnx' among {sorted(variables)}: pass all that "
            "`init` returned, and not only the parameters."
        )
    rest = variables["nnx"]
    states = (
        variables.get("params", {}),
        _with_new_keys(rest["rng_vars"], rngs or {}),
        rest["attributes"],
    )
    return nnx.merge(
        rest["graphdef"], *(nnx.State(_nested_dict(s)) for s in states), copy=True
    )


def call(method: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the result of a method, and the values that modules stored with `sow`."""
    result, interms = nnx.capture(
        lambda module: method(module, *args, **kwargs), nnx.Intermediate
    )(module)
    return result, nnx.to_pure_dict(interms)


def set_mode(module: Any, is_training: bool | None) -> None:
    """Switch the module to training or evaluation; `None` leaves it as it is."""
    if is_training is not None:
        module.train() if is_training else module.eval()


def _nested_dict(state: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        name: _nested_dict(value) if isinstance(value, Mapping) else value
        for name, value in state.items()
    }


def _check_hashable(graphdef: Any, module: Any) -> None:
    try:
        hash(graphdef)
    except TypeError as error:
        unhashable = [
            f"{'.'.join(map(str, path))}.{name}".lstrip(".")
            for path, node in nnx.iter_modules(module)
            for name, value in vars(node).items()
            if isinstance(value, list | dict | set) and not name.startswith("_")
        ]
        raise TypeError(
            f"{type(module).__name__} has attributes that cannot be hashed "
            f"({', '.join(unhashable)}: {error}). Make lists tuples, or, if they hold "
            "arrays or modules, `nnx.List` and `nnx.Dict`."
        ) from error


#
# Random streams
#


def make_rngs(rngs: Any) -> nnx.Rngs:
    """Return the streams for keys by name.

    A single key is that of `params`, and `None` stands for the seed 0.
    """
    if rngs is None:
        return nnx.Rngs(0)
    if not isinstance(rngs, Mapping):
        rngs = {"params": rngs}
    return nnx.Rngs(**{name: unwrap(key) for name, key in rngs.items()})


def takes_rngs(function: Callable[..., Any]) -> bool:
    """Return whether `rngs=` is to be given to a function or class."""
    if isinstance(function, functools.partial):
        return "rngs" not in function.keywords and takes_rngs(function.func)
    if isinstance(function, type):
        function = function.__init__  # which the signature of NNX classes hides
        if function is object.__init__:
            return False
    parameters = inspect.signature(function).parameters
    return "rngs" in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )


@contextlib.contextmanager
def naming_missing_streams(name: str) -> Iterator[None]:
    """Tell how to add a random stream that a module asked for."""
    try:
        yield
    except (AttributeError, KeyError) as error:
        missing = re.search(r"No RngStream named '(\w+)'", str(error))
        if missing is None:
            raise
        raise ValueError(
            f"{name} needs the random stream {missing[1]!r}, which it was not given. "
            "Add it with `cfg.rng_streams = kd.train.RngStreams(["
            f"kd.train.RngStream(name={missing[1]!r}, init=True)])`."
        ) from error


def _with_new_keys(
    rng_vars: Mapping[Any, Any], rngs: Mapping[str, Any]
) -> Mapping[Any, Any]:
    """Start the named streams again; streams of the same name get different keys."""
    number = 0

    def renew(variable: Any) -> Any:
        nonlocal number
        tag = str(getattr(variable, "tag", None))
        if tag not in rngs:
            return variable
        if not isinstance(variable, nnx.RngKey):
            return variable.replace(jnp.zeros_like(variable[...]))
        number += 1
        key = jax.random.fold_in(_typed_key(rngs[tag]), number)
        shape = variable.shape
        return variable.replace(jax.random.split(key, shape) if shape else key)

    return jax.tree.map(renew, rng_vars, is_leaf=lambda x: isinstance(x, nnx.Variable))


def _typed_key(key: Any) -> Any:
    key = unwrap(key)
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(key)
