"""Older module paths and classes, which pickles, saved configs and other code may name."""

from typing import Any

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.writers",
    {
        "multi_writer": "writer",
        "noop_writer": "writer",
        "scalars_file": "kd_metric_writer",
    },
)


class MetadataWriter:
    """A mixin without effect: every `WriterBase` has `write_config` and the like."""


class NoopMetadataWriter:
    """A mixin, before a writer, that writes the values of a run and nothing about it."""

    def _write_nothing(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs

    write_config = write_param_overview = _write_nothing
    write_element_spec = write_context_structure = _write_nothing
