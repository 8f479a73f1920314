"""Engines: where and how jobs run. `executor.py` says what an engine has to do."""

from __future__ import annotations

from kauldron.kxm.engines.executor import Executor as Executor
from kauldron.kxm.engines.executor import executor_from_json as executor_from_json
from kauldron.kxm.engines.executor import executor_of as executor_of
from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    from kauldron.kxm.engines.dry_run import DryRun as DryRun
    from kauldron.kxm.engines.kubernetes import Kubernetes as Kubernetes
    from kauldron.kxm.engines.local import Local as Local
    from kauldron.kxm.engines.ray import Ray as Ray
    from kauldron.kxm.engines.skypilot import SkyPilot as SkyPilot
    from kauldron.kxm.engines.slurm import Slurm as Slurm
    from kauldron.kxm.engines.stacked import Stacked as Stacked
