"""The table of runs: state, step, what differs in the configs, metrics."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import math
import os
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kauldron.errors import ReadableKeyError, did_you_mean
from kauldron.inspect.run_filter import parse_condition
from kauldron.inspect.run_folder import Run, differing_fields, find_runs, short_names
from kauldron.inspect.views import make_table

BEST = ":best"
DEVIATION = ":deviation"

_MOST_METRICS = 12
_MOST_FIELDS = 12
_LARGEST_FAMILY = 3
_SMALLER_IS_BETTER = re.compile(
    r"(^|[/_])(loss(es)?|total|err(or)?|mse|mae|rmse|nll|xent|perplexity|ppl|bpd|fid|kid"
    r"|lpips|dist(ance)?|l1|l2|divergence|kl|cost|latency|time|wer|cer)([/_]|$)|/losses/"
)


def runs(
    folder: str | os.PathLike[str],
    *,
    metrics: str | Sequence[str] | None = None,
    fields: str | Sequence[str] | None = None,
    where: str | None = None,
    sort: str | None = None,
    group: str | Sequence[str] | None = None,
) -> Any:
    """Return a table of the runs in a folder, one row each.

    The columns: `run` (the folder), `state`, `step`, `speed` (steps per second), the
    fields that differ between the configs (at most 12; of fields that have the same
    value as each other in every run, only one), the last value of each metric, and for
    evaluations also the best (`test/accuracy:best`). A metric with a value per class is
    left out unless `metrics` names it.

    Args:
      folder: A workdir, or a folder of workdirs and experiments.
      metrics: Which metrics to show: names or patterns, as a list or a text with commas.
      fields: The same for fields of the configs, also ones that do not differ.
      where: Which runs to show, such as `"lr > 1e-3 and state == complete"`.
      sort: By which column: the best first for metrics, the smallest for others. With a
        `-` in front the other way round.
      group: Fields to average over, such as `"seed"`: a row for all runs that differ
        only in these, with the mean of each metric and its standard deviation
        (`test/accuracy:deviation`).

    Returns:
      A `pandas.DataFrame`; without pandas, a plain table with the same content.

    Raises:
      KeyError: No run has a column or metric of that name.
      ValueError: `where` is not a condition.
    """
    table = read_table(
        find_runs(folder),
        metrics=metrics,
        fields=fields,
        where=where,
        sort=sort,
        group=group,
    )
    return make_table(table.names, [dict(zip(table.names, r)) for r in table.rows])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the table.

    Attributes:
      name: What users read and type.
      kind: `"run"`, `"field"`, `"metric"`, or `"deviation"` of the column before.
      path: The full name: a path in the config, or `test/metrics/accuracy`.
      is_best: Whether it is the best value of a metric, not the last.
    """

    name: str
    kind: str
    path: str = ""
    is_best: bool = False

    def value(self, run: Run) -> Any:
        """Return the cell of a run; `None` if the run has no such value."""
        if self.kind == "field":
            return run.config.get(self.path)
        if self.kind == "run":
            return getattr(run, _ATTRIBUTES[self.name])
        if self.is_best:
            found = run.best(self.path, smallest=smaller_is_better(self.path))
        else:
            found = run.last().get(self.path)
        return None if found is None else found[1]


_ATTRIBUTES = {
    "run": "name",
    "state": "state",
    "end": "end",
    "step": "step",
    "speed": "speed",
}


def _run_columns(found: Sequence[Run]) -> list[Column]:
    """Return the columns of every table; `end` only if a run ended unusually."""
    names = [n for n in _ATTRIBUTES if n != "end" or any(run.end for run in found)]
    return [Column(name=name, kind="run") for name in names]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunTable:
    """Rows of values, and what they are.

    Attributes:
      columns: What the values are.
      rows: Values in the order of the columns.
      runs: The runs of each row: one, or those of a group.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    runs: tuple[tuple[Run, ...], ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def read_table(
    found: Sequence[Run],
    *,
    metrics: str | Sequence[str] | None = None,
    fields: str | Sequence[str] | None = None,
    where: str | None = None,
    sort: str | None = None,
    group: str | Sequence[str] | None = None,
) -> RunTable:
    """Return the table that `runs` describes."""
    if not found:
        return RunTable(columns=tuple(_run_columns([])), rows=(), runs=())
    known = KnownColumns.of(found)
    if where is not None:
        condition = parse_condition(where, lambda name: bool(known.find(name)))
        found = [
            run
            for run in found
            if condition(lambda name, run=run: known.find(name).value(run))
        ]
    shown_fields = known.choose_fields(fields)
    columns = (*_run_columns(found), *shown_fields, *known.choose_metrics(metrics))
    if group is not None:
        table = _grouped(found, columns, known, _as_list(group))
    else:
        rows = tuple(tuple(c.value(run) for c in columns) for run in found)
        table = RunTable(columns=columns, rows=rows, runs=tuple((r,) for r in found))
    return table if sort is None else _sorted(table, known, sort)


#
# Which columns there are
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownColumns:
    """All columns that runs have, by their short names.

    Attributes:
      fields: What differs between the configs.
      main_fields: Those of `fields` to show. If there are many, only the ones that all
        configs have; of fields that have the same value as each other in every run,
        only the one with the plainest name.
      all_fields: All paths of the configs.
      metrics: The metrics, the last values only.
    """

    fields: dict[str, Column]
    main_fields: tuple[Column, ...]
    all_fields: frozenset[str]
    metrics: dict[str, Column]

    @classmethod
    def of(cls, found: Sequence[Run]) -> KnownColumns:
        """Return the columns of some runs."""
        paths = dict.fromkeys(path for run in found for path in run.last())
        metrics = {
            name: Column(name=name, kind="metric", path=path)
            for path, name in short_metric_names(paths).items()
        }
        configs = [run.config for run in found]
        differing = short_names(differing_fields(configs))
        fields = {
            # A field must not hide a column of another kind.
            name: Column(name=name, kind="field", path=path)
            for path, short in differing.items()
            for name in [path if short in _ATTRIBUTES else short]
        }
        shown = list(fields.values())
        if len(shown) > _MOST_FIELDS:  # experiments that have little in common
            read = [config for config in configs if config]
            shown = [c for c in shown if all(c.path in config for config in read)]
        return cls(
            fields=fields,
            main_fields=tuple(_without_copies(shown, configs)[:_MOST_FIELDS]),
            all_fields=frozenset(path for config in configs for path in config),
            metrics=metrics,
        )

    def find(self, name: str) -> Column:
        """Return the column of a name, short or full.

        Raises:
          KeyError: There is none; the message names the nearest.
        """
        if name in _ATTRIBUTES:
            return Column(name=name, kind="run")
        if name in self.fields:
            return self.fields[name]
        if name in self.all_fields:
            return Column(name=name, kind="field", path=name)
        plain = name.removesuffix(BEST)
        by_path = (c for c in self.metrics.values() if c.path == plain)
        metric = self.metrics.get(plain) or next(by_path, None)
        if metric is None:
            raise self._unknown(name)
        return metric if plain == name else _best_of(metric)

    def choose_fields(self, patterns: str | Sequence[str] | None) -> list[Column]:
        """Return the columns of fields to show: by default, what differs."""
        if patterns is None:
            return list(self.main_fields)
        chosen: dict[str, Column] = {}
        for pattern in _as_list(patterns):
            matching = [
                column
                for name, column in self.fields.items()
                if _matches(pattern, name, column.path)
            ]
            for column in (
                matching or self._equal_fields(pattern) or [self.find(pattern)]
            ):
                chosen[column.name] = column
        return list(chosen.values())

    def _equal_fields(self, pattern: str) -> list[Column]:
        """Return the columns of fields that do not differ."""
        paths = sorted(path for path in self.all_fields if _matches(pattern, path))
        return [Column(name=path, kind="field", path=path) for path in paths]

    def choose_metrics(self, patterns: str | Sequence[str] | None) -> list[Column]:
        """Return the columns of metrics to show, by default the important ones."""
        if patterns is None:
            chosen = main_metrics(self.metrics.values())[:_MOST_METRICS]
            return [shown for column in chosen for shown in _last_and_best(column)]
        found: dict[str, Column] = {}
        for pattern in _as_list(patterns):
            plain = pattern.removesuffix(BEST)
            matching = [
                column
                for column in self.metrics.values()
                if _matches(plain, column.name, column.path)
            ]
            if not matching:
                raise self._unknown(pattern)
            for column in matching:
                is_best = plain != pattern
                shown = [_best_of(column)] if is_best else _last_and_best(column)
                found |= {each.name: each for each in shown}
        return list(found.values())

    def _unknown(self, name: str) -> ReadableKeyError:
        plain = name.removesuffix(BEST)
        paths = [column.path for column in self.metrics.values()]
        candidates = [*_ATTRIBUTES, *self.fields, *self.metrics, *paths]
        ends = {c.rsplit("/", 1)[-1]: c for c in self.metrics}
        hint = did_you_mean(plain, candidates)
        if not hint and (end := plain.rsplit("/", 1)[-1]) in ends:
            hint = f" Did you mean {ends[end]!r}?"
        hint = hint or did_you_mean(plain, self.all_fields)
        listed = ", ".join([*self.fields, *(c.name for c in self.choose_metrics(None))])
        return ReadableKeyError(
            f"No run has a column {name!r}.{hint or f' There are: {listed}.'}"
        )


def _without_copies(
    columns: Sequence[Column], configs: Sequence[Mapping[str, Any]]
) -> list[Column]:
    """Leave out fields that equal another one in every run, as `cfg.ref` makes them."""
    alike: dict[Any, list[Column]] = {}
    for column in columns:
        alike.setdefault(_values_of(column.path, configs), []).append(column)
    return [min(same, key=_plainness) for same in alike.values()]


def _values_of(path: str, configs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(repr(config.get(path)) for config in configs)


def _plainness(column: Column) -> Any:
    is_positional = bool(re.search(r"[.\[]\d", column.name))
    return is_positional, column.name.count("."), len(column.name)


def short_metric_names(paths: Iterable[str]) -> dict[str, str]:
    """Return a name to read and type for each full name of a metric.

    Example:
      >>> short_metric_names(["train/losses/total", "test/metrics/accuracy"])
      {'train/losses/total': 'train/loss', 'test/metrics/accuracy': 'test/accuracy'}
    """
    paths = list(paths)
    short = {path: _shortened(path) for path in paths}
    count = collections.Counter(short.values())
    return {path: name if count[name] == 1 else path for path, name in short.items()}


def _shortened(path: str) -> str:
    name = re.sub(r"^([^/]+)/losses/total$", r"\1/loss", path)
    return re.sub(r"^([^/]+)/(losses|metrics)/", r"\1/", name)


def main_metrics(columns: Iterable[Column]) -> list[Column]:
    """Return the total losses and the metrics that are single numbers.

    A metric with many parts, such as one value per class, would fill the page.
    """
    kept = [
        column
        for column in columns
        if re.match(r"[^/]+/(losses/total$|metrics/)", column.path)
    ]
    parents = [column.path.rpartition("/")[0] for column in kept]
    size = collections.Counter(parents)
    return [
        column
        for column, parent in zip(kept, parents)
        if parent.count("/") < 2 or size[parent] <= _LARGEST_FAMILY
    ]


def smaller_is_better(name: str) -> bool:
    """Return whether the best value of a metric is the smallest, judged by its name.

    Example:
      >>> smaller_is_better("test/losses/total"), smaller_is_better("test/accuracy")
      (True, False)
    """
    return bool(_SMALLER_IS_BETTER.search(name.lower()))


def _last_and_best(column: Column) -> list[Column]:
    """Return both for an evaluation: the best of single batches means little."""
    is_train = column.path.startswith("train/")
    return [column] if is_train else [column, _best_of(column)]


def _best_of(column: Column) -> Column:
    return dataclasses.replace(column, name=f"{column.name}{BEST}", is_best=True)


def _matches(pattern: str, *names: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _as_list(value: str | Sequence[str]) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts if part.strip()]


#
# Order and groups
#


def _sorted(table: RunTable, known: KnownColumns, sort: str) -> RunTable:
    name = sort.removeprefix("-")
    if name in table.names:
        index = table.names.index(name)
        column = table.columns[index]
        values = [row[index] for row in table.rows]
    else:
        column = known.find(name)
        values = [_mean([column.value(run) for run in group]) for group in table.runs]
    largest_first = column.kind == "metric" and not smaller_is_better(column.path)
    order = sorted(
        range(len(values)),
        key=lambda i: _sort_key(values[i]),
        reverse=largest_first != sort.startswith("-"),
    )
    order.sort(key=lambda i: _is_missing(values[i]))  # those come last
    return dataclasses.replace(
        table,
        rows=tuple(table.rows[i] for i in order),
        runs=tuple(table.runs[i] for i in order),
    )


def _sort_key(value: Any) -> tuple[int, Any]:
    return (0, value) if isinstance(value, int | float) else (1, str(value))


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _grouped(
    found: Sequence[Run],
    columns: Sequence[Column],
    known: KnownColumns,
    names: Sequence[str],
) -> RunTable:
    configs = [run.config for run in found]
    over = set()
    for name in names:
        column = known.find(name)
        if column.kind != "field":
            raise ReadableKeyError(
                f"Runs are grouped over a field of their configs, which {name!r} is not."
                f"{did_you_mean(name, known.fields)} What differs: "
                f"{', '.join(known.fields) or 'nothing'}."
            )
        values = _values_of(column.path, configs)
        same = (c.path for c in known.fields.values())
        over |= {path for path in same if _values_of(path, configs) == values}
        over.add(column.path)
    fields = [c for c in columns if c.kind == "field" and c.path not in over]
    metrics = [c for c in columns if c.kind == "metric"]
    # All that differs keeps runs apart, also what is not shown.
    keys = [c for c in known.fields.values() if c.path not in over]
    groups: dict[Any, list[Run]] = {}
    for run in found:
        groups.setdefault(tuple(str(c.value(run)) for c in keys), []).append(run)
    shown: list[Column] = [Column(name="runs", kind="run"), *fields]
    for metric in metrics:
        deviation = f"{metric.name}{DEVIATION}"
        shown += [metric, Column(name=deviation, kind="deviation", path=metric.path)]
    rows = []
    for members in groups.values():
        row: list[Any] = [len(members), *(c.value(members[0]) for c in fields)]
        for metric in metrics:
            values = [metric.value(run) for run in members]
            row += [_mean(values), _deviation(values)]
        rows.append(tuple(row))
    return RunTable(
        columns=tuple(shown),
        rows=tuple(rows),
        runs=tuple(tuple(members) for members in groups.values()),
    )


def _mean(values: Sequence[Any]) -> Any:
    numbers = [v for v in values if isinstance(v, int | float)]
    if len(numbers) < len(values) and len(values) == 1:
        return values[0]
    return statistics.fmean(numbers) if numbers else None


def _deviation(values: Sequence[Any]) -> float | None:
    numbers = [v for v in values if isinstance(v, int | float)]
    if len(numbers) < 2 or not all(map(math.isfinite, numbers)):
        return None
    return statistics.stdev(numbers)
