"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.klinen",
    {
        "bound_class": "bound",
        "captured": "intermediates",
        "coded_leaves": "variables",
        "converting": "layers",
        "packed_modules": "definitions",
        "pytree": "bound",
        "pytree_nodes": "bound",
        "root": "view",
    },
)
