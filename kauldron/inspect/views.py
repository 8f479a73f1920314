"""Things to look at: HTML in a notebook, text elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Any

from etils import epath

from kauldron.utils import status

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
    """Display in a notebook; elsewhere hand it back, to be printed or saved."""
    if not status.on_notebook:
        return view
    from IPython.display import display

    display(view)
    return None
