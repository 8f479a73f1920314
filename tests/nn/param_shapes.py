"""The parameters of a module: as a flat table, or with any values."""

import jax
import numpy as np


def param_shapes(module, *args, **kwargs):
    """From path, as `layers_0/mlp/dense_in/kernel`, to shape. Nothing is computed."""
    variables = jax.eval_shape(lambda: module.init(jax.random.key(0), *args, **kwargs))
    leaves = jax.tree_util.tree_leaves_with_path(variables.get("params", {}))
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape
        for path, leaf in leaves
    }


def random_variables(module, *args, **kwargs):
    """Values for a module whose initial ones do not matter. Nothing is compiled."""
    specs = jax.eval_shape(lambda: module.init(jax.random.key(0), *args, **kwargs))
    specs = {name: specs[name] for name in specs if name != "intermediates"}
    rng = np.random.default_rng(0)

    def values(spec):
        return np.asarray(rng.normal(0, 0.3, spec.shape), spec.dtype)

    return jax.tree.map(values, specs)
