"""A config as HTML: a tree to fold and to search, with origins on hover.

The result is a fragment without outside resources, so that it can be shown in a
notebook as well as written to a file.
"""

from __future__ import annotations

from html import escape
from typing import Any

from kauldron.konfig.text.listing import Entry, outline
from kauldron.konfig.tree.configdict import as_config
from kauldron.konfig.tree.history import describe_origin

_STYLE = """
.konfig { font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; color: #24292f;
  background: #fff; padding: 8px; }
.konfig input { font: inherit; width: 24em; padding: 2px 6px; margin-bottom: 6px;
  color: inherit; background: inherit; border: 1px solid #8c959f; border-radius: 4px; }
.konfig .entry { margin-left: 1.5em; white-space: pre-wrap; }
.konfig .entry[hidden] { display: none; }
.konfig summary { cursor: pointer; margin-left: -1em; }
.konfig details:not([open]) + .closing { display: none; }
.konfig details:not([open]) summary::after { content: " ... " attr(data-closing); }
.konfig .label { color: #0550ae; }
.konfig .symbol { color: #8250df; font-weight: 600; }
.konfig .text { color: #0a3069; }
.konfig .number { color: #953800; }
.konfig .reference { color: #6e7781; font-style: italic; }
.konfig .overridden { background: #fff8c5; }
@media (prefers-color-scheme: dark) {
  .konfig { color: #e6edf3; background: #0d1117; }
  .konfig .label { color: #79c0ff; } .konfig .symbol { color: #d2a8ff; }
  .konfig .text { color: #a5d6ff; } .konfig .number { color: #ffa657; }
  .konfig .reference { color: #8b949e; } .konfig .overridden { background: #4b3b00; }
}
"""

# Shows the entries whose path or own line holds the text, and all that is around them.
# Without "<" and "&", so that the fragment is well-formed XML too.
_SEARCH = """
const wanted = this.value.toLowerCase();
const entries = [...this.parentNode.querySelectorAll('.entry')];
const holds = e => (e.dataset.path + ' ' + e.dataset.line).toLowerCase().includes(wanted);
entries.forEach(e => e.hidden = true);
entries.filter(holds).forEach(e => {
  for (let up = e; up.className != 'konfig'; up = up.parentNode) {
    up.hidden = false;
    if (up.tagName == 'DETAILS') up.open = true;
  }
});
"""


def to_html(cfg: Any) -> str:
    """Return a config as a collapsible tree.

    With a search box for paths and values, the place where each field was set shown on
    hover, and fields that a flag or a sweep has overridden highlighted.

    Args:
      cfg: A config.

    Returns:
      An HTML fragment without outside resources.
    """
    search = escape(" ".join(_SEARCH.split("\n")).strip())
    box = f'<input type="search" placeholder="Search paths and values" oninput="{search}"/>'
    tree = "".join(_entry_lines(outline(as_config(cfg))))
    return f'<div class="konfig"><style>{_STYLE}</style>{box}{tree}</div>'


def _entry_lines(entry: Entry) -> list[str]:
    line = _line(entry)
    attributes = (
        f'class="entry" data-path="{escape(entry.path)}" '
        f'data-line="{escape(entry.label + entry.text)}"'
    )
    if not entry.children:
        return [f"<div {attributes}>{line}</div>"]
    return [
        f'<div {attributes}><details open="open">'
        f'<summary data-closing="{entry.closing}">{line}</summary>',
        *(part for child in entry.children for part in _entry_lines(child)),
        f'</details><div class="closing">{escape(entry.closing)}</div></div>',
    ]


def _line(entry: Entry) -> str:
    title = f"cfg.{entry.path}" if entry.path else "cfg"
    if entry.origin is not None:
        title += f"\n{describe_origin(entry.origin)}"
    marks = "line overridden" if entry.is_overridden else "line"
    parts = [f'<span class="{marks}" title="{escape(title)}">']
    if entry.label:
        parts.append(f'<span class="label">{escape(entry.label)}</span>')
    parts.append(f'<span class="{_kind(entry)}">{escape(entry.text)}</span>')
    if entry.reference:
        parts.append(f' <span class="reference">= {escape(entry.reference)}</span>')
    return "".join([*parts, "</span>"])


def _kind(entry: Entry) -> str:
    """Return the class that colours a value."""
    first = entry.text[:1]
    if entry.closing or first.isalpha():
        return "symbol"
    return "text" if first in "'\"" else "number"
