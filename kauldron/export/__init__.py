"""Models in a form that needs only jax to run."""

from kauldron.export import compat as compat
from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    from kauldron.export.jax_exporter import JaxModelExporter as JaxModelExporter
    from kauldron.train.setup import ModelExporter as ModelExporter
    from kauldron.train.setup import NoopExporter as NoopExporter
