"""The jobs of a trainer's config: training, and one for each group of evaluators."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Self

from kauldron import konfig, path_grammar
from kauldron.errors import a_type, did_you_mean, error_prefix
from kauldron.job_params import JOB_PARAMS
from kauldron.konfig.symbols import import_qualname, normalize_qualname
from kauldron.kxm import command, merging
from kauldron.kxm.config_provider import ConfigProvider
from kauldron.kxm.jobs import Job

_log = logging.getLogger("kauldron.kxm")

_STRATEGY_OPTIONS = ("job_group", "timeout_secs", "seconds_to_sleep", "skip_missed")
_LAST, _EVERY = "StandaloneLastCheckpoint", "StandaloneEveryCheckpoint"
_IN_TRAINING = ("AlongTrain", "EveryNSteps", "Once", "Final", "RunStrategy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobsProvider:
    """Computes jobs. The default has none.

    Attributes:
      cfg_provider: The config, filled in by the experiment.
    """

    cfg_provider: ConfigProvider | None = None

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The jobs by name."""
        raise NotImplementedError(f"{type(self).__name__} does not define `jobs`.")

    @property
    def sources(self) -> dict[str, list[merging.Source]]:
        """The places that describe each job, for messages."""
        return {
            name: [merging.Source(label=f"{type(self).__name__}.jobs", params=job)]
            for name, job in self.jobs.items()
        }

    def experiment_creation(self, handle: Any) -> None:
        """Do something with the handle of the new experiment, before its jobs start."""

    def depends_on(self, paths: Iterable[str]) -> bool:
        """Return whether changes at these paths of the config may change the jobs."""
        del paths
        return True

    def with_config(self, cfg_provider: ConfigProvider | None) -> Self:
        """Return a provider for another config."""
        return dataclasses.replace(self, cfg_provider=cfg_provider)


class NoJobs(JobsProvider):
    """Provides no jobs."""

    @property
    def jobs(self) -> Mapping[str, Job]:
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class KauldronJobs(JobsProvider):
    """The jobs of the config of a `kd.train.Trainer`.

    `train` runs the training; evaluators with a standalone strategy run in jobs of their
    own, those with the same `job_group` in one.
    """

    def depends_on(self, paths: Iterable[str]) -> bool:
        own = ("xm_job", "evals", "setup", "__args__")
        firsts = {str(path_grammar.parse(path)[0]) for path in paths}
        return any(first in own or "*" in first for first in firsts)

    @property
    def jobs(self) -> Mapping[str, Job]:
        return {
            name: merging.merge_sources(sources)
            for name, sources in self.sources.items()
        }

    @property
    def sources(self) -> dict[str, list[merging.Source]]:
        provider = self.cfg_provider
        if provider is None:
            raise ValueError(
                "Which config should be trained? Give --cfg=path/to/config.py."
            )
        cfg = provider.config
        is_eval_only = bool(_get(cfg, "setup", "eval_only"))
        groups = _groups(cfg, is_eval_only=is_eval_only)
        if is_eval_only and not groups:
            raise ValueError(
                "The config only evaluates (`cfg.setup.eval_only`), but it has no "
                "evaluators: set `cfg.evals`."
            )
        result = {}
        if not is_eval_only:
            result["train"] = [_base(), *_training_sources(provider)]
        for group, names in groups.items():
            result[group] = _group_sources(provider, group, names, is_eval_only)
        return result


def _base() -> merging.Source:
    args = {"cfg": command.CFG_FLAG_VALUES, "cfg.workdir": command.WU_DIR_PROXY}
    return merging.Source(label="KauldronJobs", params=Job(args=args))


def _get(cfg: Any, *names: str) -> Any:
    for name in names:
        cfg = cfg.get(name) if isinstance(cfg, konfig.ConfigDict) else None
    return cfg


#
# Sources of job parameters
#


def _training_sources(provider: ConfigProvider) -> list[merging.Source]:
    job = _get(provider.config, "xm_job")
    if job is None:
        return _with_target([])
    source = _source(provider, "xm_job", job)
    target = source.params.target
    label = target if isinstance(target, str) and target.startswith("//") else None
    if label is not None and command.label_file(label, ".") is None:
        _log.warning(
            "cfg.xm_job.target=%r: there is no such file; `kauldron.main` is run instead.",
            label,
        )
        params = source.params.replace(target=dataclasses.MISSING)
        source = dataclasses.replace(source, params=params)
    return _with_target([source])


def _with_target(sources: list[merging.Source]) -> list[merging.Source]:
    """Return the sources, and before them the target of jobs that do not name one."""
    if any(source.params.target for source in sources):
        return sources
    default = Job(target=command.KAULDRON_TARGET)
    return [merging.Source(label="KauldronJobs", params=default), *sources]


def _group_sources(
    provider: ConfigProvider, group: str, names: list[str], is_eval_only: bool
) -> list[merging.Source]:
    evals = provider.config.evals
    classes = {_strategy_class(evals[name]) for name in names}
    after: dict[str, Any] = {}
    if not is_eval_only:
        after = {"train": "succeeded" if classes == {_LAST} else "started"}
    own = Job(args={"eval_names": ",".join(names)}, after=after)
    sources = [_base(), merging.Source(label="KauldronJobs", params=own)]
    if group == "eval_only":
        return [*sources, *_training_sources(provider)]
    described = []
    for name in names:
        run = evals[name].get("run")
        path = f"evals.{name}.run"
        described.append(_source(provider, path, _without_options(run, path)))
    return [*sources, *_with_target(described)]


def _source(provider: ConfigProvider, path: str, node: Any) -> merging.Source:
    with error_prefix(f"cfg.{path}: "):
        params = konfig.resolve(_known_symbols(node, f"cfg.{path}"), freeze=False)
    if not isinstance(params, Job):
        raise TypeError(f"cfg.{path} is {a_type(params)}, not a `kxm.Job`.")
    start = f"{path}."
    flags = [p.removeprefix(start) for p in provider.overrides if p.startswith(start)]
    return merging.Source(
        label=f"cfg.{path}",
        params=params,
        flags=frozenset(flags),
        flag=f"--cfg.{path}",
    )


def _known_symbols(node: Any, path: str) -> Any:
    """Replace names of the older launcher by ours; drop what has no counterpart."""
    if not isinstance(node, konfig.ConfigDict):
        return node
    node = copy.deepcopy(node)
    for key in list(node):
        child = node[key]
        if not isinstance(child, konfig.ConfigDict):
            continue
        name = normalize_qualname(child.get("__qualname__", ""))
        if name == "xmanager.xm.JobRequirements":
            child = konfig.ConfigDict({**child, "__qualname__": _REQUIREMENTS})
        elif name.startswith("xmanager."):
            _log.warning("%s.%s: %s has no effect.", path, key, name)
            del node[key]
            continue
        with node.ignore_type():
            node[key] = _known_symbols(child, f"{path}.{key}")
    return node


_REQUIREMENTS = "kauldron.kxm:JobRequirements"


#
# Evaluators
#


def _groups(cfg: konfig.ConfigDict, *, is_eval_only: bool) -> dict[str, list[str]]:
    """Return the evaluators of each job, in the order of the config."""
    evals = _get(cfg, "evals") or {}
    groups: dict[str, list[str]] = {}
    for name, evaluator in evals.items():
        if not isinstance(evaluator, konfig.ConfigDict):
            continue
        strategy = _strategy_class(evaluator, name)
        if strategy in (_LAST, _EVERY):
            group = evaluator["run"].get("job_group") or name
            if group == "train":
                raise ValueError(
                    f"cfg.evals.{name}: 'train' is the name of the training job. Call "
                    "the evaluator or its job_group something else."
                )
            groups.setdefault(group, []).append(name)
        elif is_eval_only:
            groups.setdefault("eval_only", []).append(name)
    for group, names in groups.items():
        if group in evals and group not in names:
            raise ValueError(
                f"job_group={group!r} of cfg.evals.{names[0]}.run is also the name of an "
                "evaluator that is not in the group. Choose another name."
            )
    return groups


def _strategy_class(evaluator: konfig.ConfigDict, name: str = "") -> str | None:
    """Return the name of the class of an evaluator's strategy."""
    run = evaluator.get("run")
    if run is None:
        return None
    qualname = run.get("__qualname__", "") if isinstance(run, konfig.ConfigDict) else ""
    cls = normalize_qualname(qualname).rpartition(".")[2]
    if cls in (_LAST, _EVERY, *_IN_TRAINING) and "kauldron" in qualname:
        return cls
    try:
        from_users = import_qualname(qualname)
        parents = [parent.__name__ for parent in from_users.__mro__]
    except Exception:
        parents = []
    for known in (_LAST, _EVERY, *_IN_TRAINING):
        if known in parents:
            return known
    raise TypeError(
        f"cfg.evals.{name}.run is a {qualname or type(run).__name__}, which is not a run "
        "strategy such as kd.evals.EveryNSteps or kd.evals.StandaloneEveryCheckpoint."
    )


def _without_options(run: konfig.ConfigDict, path: str) -> konfig.ConfigDict:
    """Return the parameters of the job that a strategy carries, as a job."""
    params = {k: v for k, v in run.items() if k in JOB_PARAMS}
    params.update(run.get("job_params") or {})
    known = (*_STRATEGY_OPTIONS, *JOB_PARAMS, "job_params")
    own_name = normalize_qualname(run["__qualname__"]).rpartition(".")[2]
    for key in run:
        # A class of the user that is derived from a strategy may have more arguments.
        if key not in (*known, "__qualname__") and own_name in (_LAST, _EVERY):
            raise TypeError(
                f"cfg.{path} has no argument {key!r}.{did_you_mean(key, known)}"
            )
    return konfig.ConfigDict({"__qualname__": "kauldron.kxm:Job", **params})
