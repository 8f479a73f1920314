"""Launching experiments: jobs, sweeps and engines.

    xp = kxm.Experiment(jobs={"main": kxm.Job(target="tools/fit.py")})
    handle = xp.launch()

Everything is imported when it is first used: the runner of each job imports this package
too, and has to start quickly.
"""

from __future__ import annotations

from kauldron.lazy_namespace import lazy_imports

# In the order in which a reader meets them.
# isort: off
with lazy_imports(__name__):
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
    from kauldron.kxm.sweeps.search import Search as Search
    from kauldron.kxm.sweeps.search import Choice as Choice
    from kauldron.kxm.sweeps.search import Range as Range

    # On which engine
    from kauldron.kxm.engines.executor import Executor as Executor
    from kauldron.kxm.engines.local import Local as Local
    from kauldron.kxm.engines.stacked import Stacked as Stacked
    from kauldron.kxm.engines.slurm import Slurm as Slurm
    from kauldron.kxm.engines.ray import Ray as Ray
    from kauldron.kxm.engines.dry_run import DryRun as DryRun
    from kauldron.kxm.engines.kubernetes import Kubernetes as Kubernetes
    from kauldron.kxm.engines.skypilot import SkyPilot as SkyPilot

    # And afterwards
    from kauldron.kxm.handle import ExperimentHandle as ExperimentHandle
    from kauldron.kxm.handle import WorkUnitHandle as WorkUnitHandle
    from kauldron.kxm.handle import get_experiment as get_experiment
    from kauldron.kxm.handle import list_experiments as list_experiments
    from kauldron.kxm.handle import report as report
# isort: on
