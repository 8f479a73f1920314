"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.writers",
    {
        "multi_writer": "writer",
        "noop_writer": "writer",
        "scalars_file": "kd_metric_writer",
    },
)
