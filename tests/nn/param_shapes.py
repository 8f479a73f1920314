"""The parameters of a module: as a flat table, or with any values."""

import functools
import itertools

import jax
import numpy as np


def param_shapes(module, *args, **kwargs):
    """From path, as `layers_0/mlp/dense_in/kernel`, to shape. Nothing is computed."""
    variables = variable_specs(module, *args, **kwargs)
    leaves = jax.tree_util.tree_leaves_with_path(variables.get("params", {}))
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape
        for path, leaf in leaves
    }


def random_variables(module, *args, **kwargs):
    """Values for a module whose initial ones do not matter. Nothing is compiled."""
    specs = variable_specs(module, *args, **kwargs)
    specs = {name: specs[name] for name in specs if name != "intermediates"}
    rng = np.random.default_rng(0)

    def values(spec):
        return np.asarray(rng.normal(0, 0.3, spec.shape), spec.dtype)

    return jax.tree.map(values, specs)


def variable_specs(module, *args, **kwargs):
    """Shapes of the variables. Equal modules with inputs of one shape are traced once."""
    inputs = map(_spec, (*args, *kwargs.values()))
    key = (module, len(args), tuple(kwargs), *inputs)
    try:
        hash(key)
    except TypeError:  # a field or an input is a list
        return _trace.__wrapped__(*key)
    return _trace(*key)


def _spec(value):
    if isinstance(value, np.ndarray):
        return jax.ShapeDtypeStruct(value.shape, value.dtype)
    return value


@functools.cache
def _trace(module, num_args, names, *inputs):
    is_array = [isinstance(value, jax.ShapeDtypeStruct) for value in inputs]

    def init(arrays):
        arrays = iter(arrays)
        values = [next(arrays) if is_one else x for is_one, x in zip(is_array, inputs)]
        kwargs = dict(zip(names, values[num_args:], strict=True))
        return module.init(jax.random.key(0), *values[:num_args], **kwargs)

    return jax.eval_shape(init, list(itertools.compress(inputs, is_array)))
