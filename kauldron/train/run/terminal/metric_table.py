"""The table of a run in a terminal: which columns there are, and its rows."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from kauldron.writers import texts

_GAP = 2
_GROUP_GAP = 4
_CELL_WIDTH = 7
_LONGEST_TITLE = 14
_LONGEST_NAME = 14
_NOTES_WIDTH = _GAP + len("best, saved")

# Names of the sixteen colours, which every theme makes readable on its background.
_BETTER = "green"
_WORSE = "red"
_HEADER = "bold"
_GROUP = "bold cyan"
_NOTE = "cyan"

_collection = operator.attrgetter("collection")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One value of one collection.

    Attributes:
      collection: Such as `"train"`.
      key: Name of the value in the log.
      title: Its short name.
      width: In characters.
    """

    collection: str
    key: str
    title: str
    width: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The columns that have a place, from left to right.

    Attributes:
      columns: Those of a collection are neighbours.
      step_width: Width of the first column.
      num_hidden: How many values have no place.
    """

    columns: tuple[Column, ...]
    step_width: int
    num_hidden: int = 0


def make_layout(
    keys: Mapping[str, Sequence[str]], *, width: int, last_step: int | None
) -> Layout:
    """Choose columns: each collection gets its first before any gets its second."""
    step_width = max(5, len(str(last_step or 0)))
    groups = [_columns(collection, names) for collection, names in keys.items()]
    by_rank = itertools.chain.from_iterable(itertools.zip_longest(*groups))
    chosen: list[Column] = []
    hidden = 0
    used = step_width + _NOTES_WIDTH
    for column in filter(None, by_rank):
        is_first = all(c.collection != column.collection for c in chosen)
        needed = column.width + (_GROUP_GAP if is_first else _GAP)
        if hidden or used + needed > width:
            hidden += 1
            continue
        used += needed
        chosen.append(column)
    order = [column for group in groups for column in group if column in chosen]
    return Layout(columns=tuple(order), step_width=step_width, num_hidden=hidden)


def _columns(collection: str, keys: Sequence[str]) -> list[Column]:
    name_width = min(len(collection) + 2, _LONGEST_NAME)  # above the first column
    return [
        Column(
            collection=collection,
            key=key,
            title=_title(name.replace("_", " ")),
            width=max(
                _CELL_WIDTH,
                min(len(name), _LONGEST_TITLE),
                0 if index else name_width,
            ),
        )
        for index, (key, name) in enumerate(texts.short_names(keys).items())
    ]


def header(layout: Layout) -> list[Text]:
    """Return the lines above the rows: collections, if there are several, and names."""
    titles = Text("step".rjust(layout.step_width), style=_HEADER, no_wrap=True)
    groups = Text(" " * layout.step_width, no_wrap=True)
    for collection, columns in itertools.groupby(layout.columns, _collection):
        members = list(columns)
        span = sum(c.width for c in members) + _GAP * (len(members) - 1)
        groups.append(" " * _GROUP_GAP)
        groups.append_text(_group_title(collection, span))
        for index, column in enumerate(members):
            titles.append(" " * (_GAP if index else _GROUP_GAP))
            titles.append(column.title.rjust(column.width))
    if layout.num_hidden:
        groups.append(f"{' ' * _GAP}+{layout.num_hidden} more", style="dim")
    is_plain = {c.collection for c in layout.columns} <= {"train"}
    return [titles] if is_plain and not layout.num_hidden else [groups, titles]


def _group_title(name: str, span: int) -> Text:
    name = f" {_cut(name, span - 2)} "
    left = (span - len(name)) // 2
    rules = "─" * left, "─" * (span - len(name) - left)
    return Text.assemble((rules[0], "dim"), (name, _GROUP), (rules[1], "dim"))


def _title(name: str) -> str:
    """Return a name, of which the end tells nested ones apart."""
    is_short = len(name) <= _LONGEST_TITLE or "/" not in name
    return _cut(name, _LONGEST_TITLE) if is_short else f"…{name[1 - _LONGEST_TITLE :]}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


@dataclasses.dataclass(kw_only=True)
class Row:
    """The values of one step.

    Attributes:
      step: Number of updates.
      values: By collection and name.
      notes: Such as `"saved"`.
    """

    step: int
    values: dict[tuple[str, str], float] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(kw_only=True)
class Best:
    """The best value so far of what a run is judged by.

    Attributes:
      collection: Of the value.
      key: Its name in the log.
      is_lower: Whether a smaller value is better.
      value: The best one so far.
    """

    collection: str
    key: str
    is_lower: bool
    value: float | None = None

    def add(self, value: Any) -> bool:
        """Take a value into account; return whether it beats an earlier one."""
        if not isinstance(value, int | float) or not math.isfinite(value):
            return False
        earlier = self.value
        is_better = earlier is None or (
            value < earlier if self.is_lower else value > earlier
        )
        if is_better:
            self.value = value
        return is_better and earlier is not None


class MetricTable:
    """Rows as they come, of which the newest may still be filled in."""

    def __init__(
        self,
        *,
        last_step: int | None = None,
        best: Best | None = None,
        earlier: Mapping[str, Mapping[str, Any]] | None = None,
        order: Mapping[str, Sequence[str]] | None = None,
    ):
        """Begin a table.

        `earlier` holds the newest values of each collection that an earlier start wrote,
        `order` the names of its metrics, the most important first.
        """
        self._order = {
            (collection, f"metrics/{name}"): index
            for collection, names in (order or {}).items()
            for index, name in enumerate(names)
        }
        self._last_step = last_step
        self._best = best
        self._keys: dict[str, dict[str, None]] = {"train": {}}
        self._before: dict[tuple[str, str], float] = {}
        self._shown: Layout | None = None
        self.row: Row | None = None
        for collection, values in (earlier or {}).items():
            self._add(collection, values, self._before)

    def add(
        self, step: int, collection: str, values: Mapping[str, float], width: int
    ) -> list[Text]:
        """Add values; return the lines of a row that they complete."""
        finished = self._row_at(step, width)
        assert self.row is not None
        self._add(collection, values, self.row.values)
        best = self._best
        if best and best.collection == collection and best.add(values.get(best.key)):
            self.row.notes.insert(0, "best")
        return finished

    def note_saved(self, step: int, width: int) -> list[Text]:
        """Note that a step was saved; return the lines of a row that this completes."""
        finished = self._row_at(step, width)
        assert self.row is not None
        self.row.notes.append("saved")
        return finished

    def finish(self, width: int) -> list[Text]:
        """Return the lines of the newest row, which gets no more values.

        One without values, of a step that was only saved, does not stay.
        """
        if self.row is None or not self.row.values:
            self.row = None
            return []
        lines = list(self.pending(width))
        self._shown = self._layout(width)
        self._before |= self.row.values
        self.row = None
        return lines

    def num_hidden(self, width: int) -> int:
        """Return how many values have no place."""
        return self._layout(width).num_hidden

    def pending(self, width: int) -> Iterator[Text]:
        """Yield the lines of the newest row, with a header where columns have changed."""
        row = self.row
        if row is None:
            return
        layout = self._layout(width)
        if layout != self._shown:
            yield from header(layout)
        yield self._row_text(row, layout)

    def _add(
        self,
        collection: str,
        values: Mapping[str, Any],
        to: dict[tuple[str, str], float],
    ) -> None:
        self._keys.setdefault(collection, {}).update(dict.fromkeys(values))
        for key, value in values.items():
            to[collection, key] = float(value)

    def _row_at(self, step: int, width: int) -> list[Text]:
        is_new = self.row is None or self.row.step != step
        finished = self.finish(width) if is_new else []
        if is_new:
            self.row = Row(step=step)
        return finished

    def _layout(self, width: int) -> Layout:
        keys = {
            name: sorted(names, key=lambda key, name=name: self._place(name, key))
            for name, names in self._keys.items()
            if names
        }
        return make_layout(keys, width=width, last_step=self._last_step)

    def _place(self, collection: str, key: str) -> int:
        """Return the place of a metric, or of what a nested one is part of."""
        while key and (collection, key) not in self._order:
            key = key.rpartition("/")[0]
        return self._order.get((collection, key), len(self._order))

    def _row_text(self, row: Row, layout: Layout) -> Text:
        text = Text(str(row.step).rjust(layout.step_width), no_wrap=True)
        for collection, columns in itertools.groupby(layout.columns, _collection):
            for index, column in enumerate(columns):
                text.append(" " * (_GAP if index else _GROUP_GAP))
                value = row.values.get((collection, column.key))
                cell = "" if value is None else texts.number(value)
                style = self._style(row, column, value)
                text.append(cell.rjust(column.width), style=style)
        if row.notes:
            text.append(" " * _GAP)
            text.append(", ".join(row.notes), style=_NOTE)
        return text

    def _style(self, row: Row, column: Column, value: float | None) -> str:
        if value is None:
            return ""
        place = (column.collection, column.key)
        is_best = "best" in row.notes and self._is_judged_by(row, column)
        if not math.isfinite(value):
            return f"bold {_WORSE}"
        before, lower = self._before.get(place), texts.is_better_lower(column.key)
        if before is None or lower is None or value == before:
            return "bold" if is_best else ""
        color = _BETTER if (value < before) == lower else _WORSE
        return f"bold {color}" if is_best else color

    def _is_judged_by(self, row: Row, column: Column) -> bool:
        """Return whether a column shows what decides which row is the best.

        A single loss is shown as the total, which is the same number.
        """
        best = self._best
        if best is None or column.collection != best.collection:
            return False
        judged, shown = best.key, column.key
        if shown == "losses/total" and judged.startswith("losses/"):
            values = (row.values.get((best.collection, key)) for key in (judged, shown))
            return len(set(values)) == 1
        return shown == judged
