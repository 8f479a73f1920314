"""Older module paths, which pickles and saved configs may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    {
        "kauldron.klinen.bound_class": "kauldron.klinen.bound",
        "kauldron.klinen.captured": "kauldron.klinen.intermediates",
        "kauldron.klinen.coded_leaves": "kauldron.klinen.variables",
        "kauldron.klinen.converting": "kauldron.klinen.layers",
        "kauldron.klinen.packed_modules": "kauldron.klinen.definitions",
        "kauldron.klinen.pytree_nodes": "kauldron.klinen.pytree",
        "kauldron.klinen.root": "kauldron.klinen.view",
    }
)
