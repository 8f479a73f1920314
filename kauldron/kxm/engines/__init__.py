"""Engines: where and how jobs run. `executor.py` says what an engine has to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.kxm.engines.executor import Executor as Executor
from kauldron.kxm.engines.executor import executor_from_json as executor_from_json
from kauldron.kxm.engines.executor import executor_of as executor_of
from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.kxm.engines.dry_run import DryRun as DryRun
    from kauldron.kxm.engines.kubernetes import Kubernetes as Kubernetes
    from kauldron.kxm.engines.local import Local as Local

__getattr__, __dir__ = lazy_namespace(
    __name__,
    {
        "DryRun": f"{__name__}.dry_run:DryRun",
        "Kubernetes": f"{__name__}.kubernetes:Kubernetes",
        "Local": f"{__name__}.local:Local",
    },
)
