"""Older module paths and where their names live now."""

from kauldron.lazy_namespace import older_modules

older_modules(
    {
        "kauldron.writers.multi_writer": "kauldron.writers.writer",
        "kauldron.writers.noop_writer": "kauldron.writers.writer",
        "kauldron.writers.scalars_file": "kauldron.writers.kd_metric_writer",
    }
)
