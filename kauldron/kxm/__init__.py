"""Launching experiments: jobs, sweeps and engines.

    xp = kxm.Experiment(jobs={"main": kxm.Job(target="tools/fit.py")})
    handle = xp.launch()

Everything is imported when it is first used: the runner of each job imports this package
too, and has to start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

# In the order in which a reader meets them.
# isort: off
if TYPE_CHECKING:
    # What to launch
    from kauldron.kxm.experiment import Experiment as Experiment
    from kauldron.kxm.jobs import Job as Job
    from kauldron.kxm.jobs import JobRequirements as JobRequirements
    from kauldron.kxm.jobs import Debug as Debug
    from kauldron.kxm.jobs import InterpreterInfo as InterpreterInfo
    from kauldron.kxm.jobs import MLPython as MLPython
    from kauldron.kxm.merging import merge as merge
    from kauldron.kxm.command import WU_DIR_PROXY as WU_DIR_PROXY
    from kauldron.kxm.command import XP_DIR_PROXY as XP_DIR_PROXY
    from kauldron.kxm.command import CFG_FLAG_VALUES as CFG_FLAG_VALUES
    from kauldron.kxm.command import file_path as file_path
    from kauldron.kxm.config_provider import ConfigProvider as ConfigProvider
    from kauldron.kxm.kauldron_jobs import JobsProvider as JobsProvider
    from kauldron.kxm.kauldron_jobs import KauldronJobs as KauldronJobs
    from kauldron.kxm.experiment import Orchestrator as Orchestrator
    from kauldron.kxm.experiment import SweepOrchestrator as SweepOrchestrator

    # Where
    from kauldron.kxm.folders import SubdirFormat as SubdirFormat
    from kauldron.kxm.folders import DirectoryBuilder as DirectoryBuilder

    # In which variants
    from kauldron.kxm.sweeps import SweepInfo as SweepInfo
    from kauldron.kxm.sweeps import SweepItem as SweepItem
    from kauldron.kxm.sweeps import NoSweep as NoSweep
    from kauldron.kxm.sweeps import SimpleSweep as SimpleSweep
    from kauldron.kxm.sweeps import SweepFromCfg as SweepFromCfg
    from kauldron.kxm.sweeps import KauldronSweep as KauldronSweep
    from kauldron.kxm.sweeps import sweep_configs as sweep_configs
    from kauldron.kxm.search import Search as Search
    from kauldron.kxm.search import Choice as Choice
    from kauldron.kxm.search import Range as Range

    # On which engine
    from kauldron.kxm.engines.executor import Executor as Executor
    from kauldron.kxm.engines.local import Local as Local
    from kauldron.kxm.engines.dry_run import DryRun as DryRun
    from kauldron.kxm.engines.kubernetes import Kubernetes as Kubernetes

    # And afterwards
    from kauldron.kxm.handle import ExperimentHandle as ExperimentHandle
    from kauldron.kxm.handle import WorkUnitHandle as WorkUnitHandle
    from kauldron.kxm.handle import get_experiment as get_experiment
    from kauldron.kxm.handle import list_experiments as list_experiments
    from kauldron.kxm.handle import report as report
# isort: on

_MEMBERS = {
    "experiment": ("Experiment", "Orchestrator", "SweepOrchestrator"),
    "jobs": ("Job", "JobRequirements", "Debug", "InterpreterInfo", "MLPython"),
    "merging": ("merge",),
    "command": ("WU_DIR_PROXY", "XP_DIR_PROXY", "CFG_FLAG_VALUES", "file_path"),
    "config_provider": ("ConfigProvider",),
    "kauldron_jobs": ("JobsProvider", "KauldronJobs"),
    "folders": ("SubdirFormat", "DirectoryBuilder"),
    "sweeps": (
        "SweepInfo",
        "SweepItem",
        "NoSweep",
        "SimpleSweep",
        "SweepFromCfg",
        "KauldronSweep",
        "sweep_configs",
    ),
    "search": ("Search", "Choice", "Range"),
    "engines.executor": ("Executor",),
    "engines.local": ("Local",),
    "engines.dry_run": ("DryRun",),
    "engines.kubernetes": ("Kubernetes",),
    "handle": (
        "ExperimentHandle",
        "WorkUnitHandle",
        "get_experiment",
        "list_experiments",
        "report",
    ),
}

__getattr__, __dir__ = lazy_namespace(
    __name__,
    {
        name: f"{__name__}.{module}:{name}"
        for module, names in _MEMBERS.items()
        for name in names
    },
)
