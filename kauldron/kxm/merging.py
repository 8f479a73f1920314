"""One job from several places that describe it.

A job is described by the config (`cfg.xm_job`, `evals.*.run`), by `xp.jobs[name]` and by
the experiment as a whole. What only one of them gives is taken; dicts and parameter
objects are merged field by field; two different values for one thing are an error, unless
one of them was typed on the command line.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kauldron.kxm.jobs import Job, JobParams, Parameters, short_repr

_log = logging.getLogger("kauldron.kxm")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A place that describes a job.

    Attributes:
      label: What messages call it: `cfg.xm_job`.
      params: What it says.
      flags: The paths in `params` that were typed on the command line.
      flag: What the flags begin with: `--cfg.xm_job`.
    """

    label: str
    params: JobParams
    flags: frozenset[str] = frozenset()
    flag: str = ""


# Of two flags for one value the more specific wins.
_SPECIFICITY = ("--xp", "--cfg", "--xp.jobs")


def merge(*params: Any) -> Job:
    """Merge descriptions of a job that stand in Python.

    Args:
      *params: Jobs, experiments, strategies of standalone evaluators or other objects
        with parameters of a job.

    Returns:
      A job with all their given arguments.

    Raises:
      TypeError: Values of different types for one parameter.
      ValueError: Different values for one parameter.

    Example:
      >>> merge(Job(args={"a": 1}), Job(args={"b": 2}, platform="cpu")).args
      {'a': 1, 'b': 2}
    """
    return merge_sources(
        [Source(label=type(p).__name__, params=_parameters_of(p)) for p in params]
    )


def _parameters_of(value: Any) -> JobParams:
    """Return a description of a job; evaluators carry one in their `job_params`."""
    return value if isinstance(value, JobParams) else Job(**value.job_params)


def merge_sources(sources: Sequence[Source]) -> Job:
    """Merge descriptions that know where they come from; see `merge`."""
    classes = " / ".join(dict.fromkeys(type(s.params).__name__ for s in sources))
    merged: dict[str, Any] = {}
    for source in sources:
        # The name of an experiment is not that of its jobs.
        kind = Job if isinstance(source.params, Job) else JobParams
        allowed = {field.name for field in dataclasses.fields(kind)}
        tree = {
            name: _tree(_normal(name, value), source, name)
            for name, value in source.params.explicit.items()
            if name in allowed and value is not None
        }
        merged = _merge_dicts(merged, tree, f"({classes})")
    return Job(**{name: _value(node) for name, node in merged.items()})


def _normal(name: str, value: Any) -> Any:
    if name == "executor":
        from kauldron.kxm.engines import executor_of

        return executor_of(value)
    return value


#
# Trees of values that know where they come from
#


@dataclasses.dataclass(frozen=True)
class _Leaf:
    value: Any
    source: Source
    is_flag: bool


@dataclasses.dataclass(frozen=True)
class _Branch:
    kind: type
    children: dict[str, Any]
    source: Source


def _tree(value: Any, source: Source, path: str) -> Any:
    if isinstance(value, Parameters | Mapping):
        items = value.explicit if isinstance(value, Parameters) else value
        kind = type(value) if isinstance(value, Parameters) else dict
        children = {
            k: _tree(v, source, f"{path}.{k}")
            for k, v in items.items()
            if v is not None or kind is dict
        }
        return _Branch(kind, children, source)
    return _Leaf(value, source, _is_below(path, source.flags))


def _is_below(path: str, flags: Iterable[str]) -> bool:
    return any(path == flag or path.startswith(f"{flag}.") for flag in flags)


def _value(node: Any) -> Any:
    if isinstance(node, _Leaf):
        return node.value
    children = {name: _value(child) for name, child in node.children.items()}
    return children if node.kind is dict else node.kind(**children)


def _merge_dicts(a: dict[str, Any], b: dict[str, Any], path: str) -> dict[str, Any]:
    result = dict(a)
    for name, node in b.items():
        place = f"{path}.{name}"
        result[name] = _merge(a[name], node, place) if name in a else node
    return result


def _merge(a: Any, b: Any, path: str) -> Any:
    if isinstance(a, _Branch) and isinstance(b, _Branch) and a.kind is b.kind:
        return _Branch(a.kind, _merge_dicts(a.children, b.children, path), a.source)
    same_kind = False
    if isinstance(a, _Leaf) and isinstance(b, _Leaf):
        if _equal(a.value, b.value):
            return a
        if a.is_flag or b.is_flag:
            return _settle(a, b, path)
        same_kind = type(a.value) is type(b.value)
    what = "conflicting values" if same_kind else "different types"
    name = path.partition(").")[2]
    message = (
        f"{path}: {what}: {_shown(a)} of {a.source.label}, {_shown(b)} of "
        f"{b.source.label}. Choose one with --xp.{name}=..."
    )
    raise (ValueError if same_kind else TypeError)(message)


def _settle(a: _Leaf, b: _Leaf, path: str) -> _Leaf:
    """Return the one that was typed; of two, the more specific one."""

    def rank(leaf: _Leaf) -> int:
        if not leaf.is_flag:
            return -1
        starts = [s for s in _SPECIFICITY if leaf.source.flag.startswith(s)]
        return max(map(_SPECIFICITY.index, starts), default=0)

    winner, loser = (a, b) if rank(a) >= rank(b) else (b, a)
    _log.warning(
        "%s: %r of %s is overridden by the flag %s.%s=%s.",
        path,
        loser.value,
        loser.source.label,
        winner.source.flag or "--xp",
        path.partition(").")[2],
        winner.value,
    )
    return winner


def _equal(a: Any, b: Any) -> bool:
    numbers = (int, float)
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return list(a) == list(b)
    if isinstance(a, numbers) and isinstance(b, numbers):
        return a == b
    return type(a) is type(b) and bool(a == b)


def _shown(node: Any) -> str:
    return short_repr(_value(node))
