"""Looking at an experiment: data, model, keys, shardings, schedules.

Nothing here needs a notebook or a plotting library. Where pandas, Altair or graphviz is
installed their objects are returned, otherwise a plain object with the same content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.inspect.batches import get_batch_stats as get_batch_stats
    from kauldron.inspect.batches import plot_batch as plot_batch
    from kauldron.inspect.charts import get_connection_graph as get_connection_graph
    from kauldron.inspect.charts import plot_schedules as plot_schedules
    from kauldron.inspect.model_overview import (
        get_colab_model_overview as get_colab_model_overview,
    )
    from kauldron.inspect.model_overview import lower_trainstep as lower_trainstep
    from kauldron.inspect.specs import json_spec_like as json_spec_like
    from kauldron.inspect.specs import plot_context as plot_context
    from kauldron.inspect.specs import plot_sharding as plot_sharding
    from kauldron.inspect.trainer_page import show_trainer_info as show_trainer_info
    from kauldron.train.run.profiler import NoopProfiler as NoopProfiler
    from kauldron.train.run.profiler import Profiler as Profiler

# In the order a reader wants. A file must not have the name of a member: importing it
# would hide the member.
_MEMBERS = {
    "show_trainer_info": "kauldron.inspect.trainer_page",
    "get_batch_stats": "kauldron.inspect.batches",
    "plot_batch": "kauldron.inspect.batches",
    "plot_context": "kauldron.inspect.specs",
    "json_spec_like": "kauldron.inspect.specs",
    "get_colab_model_overview": "kauldron.inspect.model_overview",
    "plot_sharding": "kauldron.inspect.specs",
    "lower_trainstep": "kauldron.inspect.model_overview",
    "get_connection_graph": "kauldron.inspect.charts",
    "plot_schedules": "kauldron.inspect.charts",
    "Profiler": "kauldron.train.run.profiler",
    "NoopProfiler": "kauldron.train.run.profiler",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{module}:{name}" for name, module in _MEMBERS.items()}
)
