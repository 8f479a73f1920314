"""Things to look at: pages and tables, HTML in a notebook, text elsewhere."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from etils import epath

from kauldron import status
from kauldron.errors import ReadableKeyError, did_you_mean

#
# Pages
#


_PAGE = (
    "<!DOCTYPE html><meta charset='utf-8'><title>{title}</title>"
    "<body style='font-family:sans-serif'>{body}</body>"
)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class View:
    """Something to look at.

    Attributes:
      html: For a notebook or a browser.
      text: For a terminal.
      title: Of the page that `save` writes.
    """

    html: str
    text: str
    title: str = "kauldron"

    def save(self, path: epath.PathLike) -> epath.Path:
        """Write a page that a browser shows, and return its path."""
        path = epath.Path(path)
        path.write_text(_PAGE.format(title=self.title, body=self.html))
        return path

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def show(view: Any) -> Any:
    """Display in a notebook; elsewhere return it, to be printed or saved."""
    if not status.on_notebook:
        return view
    from IPython.display import display

    display(view)
    return None


#
# Tables: a pandas DataFrame where pandas is installed, a plain one elsewhere
#


_MOST_ROWS = 60  # that are printed


def make_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a table of rows.

    A `pandas.DataFrame`; without pandas, a `Table` with the same content.
    """
    try:
        import pandas
    except ImportError:
        return Table(columns, rows)
    return pandas.DataFrame(list(rows), columns=pandas.Index(list(columns)))


class Table:
    """What stands in for a DataFrame: columns by name, rows, text, HTML.

    Example:
      >>> table = Table(["Name", "Size"], [{"Name": "a", "Size": 2}])
      >>> table
      Name  Size
      a     2
      >>> table["Size"], len(table)
      ([2], 1)
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]):
        self.columns = list(columns)
        self._rows = [dict(row) for row in rows]

    def __getitem__(self, column: str) -> list[Any]:
        if column not in self.columns:
            raise ReadableKeyError(
                f"There is no column {column!r}.{did_you_mean(column, self.columns)} "
                f"Columns: {', '.join(self.columns)}."
            )
        return [row[column] for row in self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        """Return the names of the columns, as a DataFrame gives them."""
        return iter(self.columns)

    @property
    def data(self) -> Table:
        """Itself: what a styled DataFrame calls the DataFrame inside."""
        return self

    def to_dict(self, orient: str = "records") -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        if orient != "records":
            self._refuse(f"to_dict({orient!r})")
        return [dict(row) for row in self._rows]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by copy, pickle and notebooks
            raise AttributeError(name)
        self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise AttributeError(
            f"This table has no {name!r}: it is not a DataFrame, because pandas is not "
            'installed. pip install "kauldron[inspect]"'
        )

    def __repr__(self) -> str:
        if len(self) <= _MOST_ROWS:
            return format_table(self.columns, self._rows)
        shown = format_table(self.columns, self._rows[:_MOST_ROWS])
        return f"{shown}\n... {len(self)} rows"

    def _repr_html_(self) -> str:
        return html_table(self.columns, self._rows)


def rows_of(table: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and rows of what `make_table` made."""
    return [str(name) for name in table.columns], table.to_dict(orient="records")


def format_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as aligned text. Cells of several lines take several lines."""
    cells = [[[name] for name in columns]]
    cells += [[_cell(row[name]).split("\n") for name in columns] for row in rows]
    widths = [
        max(len(line) for row in cells for line in row[i]) for i in range(len(columns))
    ]
    lines = []
    for row in cells:
        for number in range(max(map(len, row), default=0)):
            texts = [cell[number] if number < len(cell) else "" for cell in row]
            padded = (text.ljust(width) for text, width in zip(texts, widths))
            lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def html_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as HTML. Cells of several lines keep them."""
    style = 'style="text-align:left;white-space:pre-line;vertical-align:top"'
    head = "".join(f"<th {style}>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td {style}>{html.escape(_cell(row[n]))}</td>" for n in columns)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
