"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.kontext",
    {
        "annotate": "keys",
        "filter_utils": "search",
        "glob_paths": "paths search",
        "path_parser": "paths",
        "type_utils": "annotations",
    },
)
