"""The parameters of a module as a flat table."""

import jax


def param_shapes(module, *args, **kwargs):
    """From path, as `layers_0/mlp/dense_in/kernel`, to shape. Nothing is computed."""
    variables = jax.eval_shape(lambda: module.init(jax.random.key(0), *args, **kwargs))
    leaves = jax.tree_util.tree_leaves_with_path(variables.get("params", {}))
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape
        for path, leaf in leaves
    }
