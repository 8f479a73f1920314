"""Looking at an experiment: data, model, keys, shardings, schedules.

Nothing here needs a notebook or a plotting library. Where pandas, Altair or graphviz is
installed their objects are returned, otherwise a plain object with the same content.
"""

from __future__ import annotations

from kauldron.inspect import compat as compat
from kauldron.lazy_namespace import lazy_imports

# A file must not have the name of a member: importing it would hide the member.
with lazy_imports(__name__):
    from kauldron.inspect.batches import get_batch_stats as get_batch_stats
    from kauldron.inspect.batches import plot_batch as plot_batch
    from kauldron.inspect.charts import get_connection_graph as get_connection_graph
    from kauldron.inspect.charts import plot_schedules as plot_schedules
    from kauldron.inspect.model_overview import (
        get_colab_model_overview as get_colab_model_overview,
    )
    from kauldron.inspect.model_overview import lower_trainstep as lower_trainstep
    from kauldron.inspect.run_table import runs as runs
    from kauldron.inspect.specs import json_spec_like as json_spec_like
    from kauldron.inspect.specs import plot_context as plot_context
    from kauldron.inspect.specs import plot_sharding as plot_sharding
    from kauldron.inspect.trainer_page import show_trainer_info as show_trainer_info
    from kauldron.train.run.profiler import NoopProfiler as NoopProfiler
    from kauldron.train.run.profiler import Profiler as Profiler
