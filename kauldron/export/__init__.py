"""Models in a form that needs only jax to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.export.jax_exporter import JaxModelExporter as JaxModelExporter
    from kauldron.train.setup import ModelExporter as ModelExporter
    from kauldron.train.setup import NoopExporter as NoopExporter

__getattr__, __dir__ = lazy_namespace(
    __name__,
    {
        "JaxModelExporter": "kauldron.export.jax_exporter:JaxModelExporter",
        "ModelExporter": "kauldron.train.setup:ModelExporter",
        "NoopExporter": "kauldron.train.setup:NoopExporter",
    },
)
