"""The board as one HTML file to send to a colleague: no server, no network."""

from __future__ import annotations

import base64
import json
import os
import pathlib
from typing import Any

from kauldron.board.contents import Contents
from kauldron.board.server import PAGE, SCRIPTS
from kauldron.files import write_atomically

_MOST_STEPS = 6  # of a picture or text
_MOST_PICTURES_BYTES = 24 << 20
_MOST_LOG_CHARACTERS = 40_000


def write_report(
    path: str | os.PathLike[str], *workdirs: str | os.PathLike[str]
) -> pathlib.Path:
    """Write the board of some runs to a file.

    Curves are thinned to what a screen shows. Of pictures and texts, the last and a few
    evenly spaced steps are kept.

    Args:
      path: The HTML file.
      *workdirs: Workdirs, or folders of them.

    Returns:
      The path.

    Raises:
      ValueError: There are no runs.
    """
    contents = Contents(*workdirs)
    answers = _answers(contents)
    if not answers["runs"]["runs"]:
        folders = ", ".join(str(workdir) for workdir in workdirs)
        raise ValueError(f"There are no runs below {folders}.")
    write_atomically(path, _page(answers))
    return pathlib.Path(path)


def _answers(contents: Contents) -> dict[str, Any]:
    """Return all answers that the page may ask for, by what it asks."""
    overview = contents.runs()
    answers: dict[str, Any] = {"runs": overview, "best": contents.best()}
    for metric in overview["metrics"]:
        for by in ("step", "time"):
            curves = contents.curves(metric["name"], by=by)
            answers[_key("curves", metric=metric["name"], by=by)] = curves
    budget = [_MOST_PICTURES_BYTES]
    for run in overview["runs"]:
        answers |= _answers_about(contents, run["name"], budget)
    return answers


def _answers_about(contents: Contents, run: str, budget: list[int]) -> dict[str, Any]:
    files = contents.files(run)
    answers: dict[str, Any] = {
        _key("config", run=run): contents.config(run),
        _key("files", run=run): files,
    }
    for name in files["logs"]:
        text = contents.log(run, name)[-_MOST_LOG_CHARACTERS:]
        answers[_key("log", run=run, name=name)] = text
    media = []
    for item in contents.media(run):
        kind, tag = item["kind"], item["tag"]
        if kind == "histogram":
            histograms = contents.histograms(run, tag)
            answers[_key("histograms", run=run, tag=tag)] = histograms
            media.append(item)
            continue
        steps = _some(item["steps"])
        for step in list(steps):
            value = contents.item(run, kind, tag, step)
            if kind == "image":
                budget[0] -= len(value)
                if budget[0] < 0:
                    steps.remove(step)
                    continue
                value = f"data:image/png;base64,{base64.b64encode(value).decode()}"
            answers[_key(kind, run=run, tag=tag, step=step)] = value
        if steps:
            media.append({**item, "steps": steps})
    answers[_key("media", run=run)] = media
    return answers


def _some(steps: list[int]) -> list[int]:
    """Return at most `_MOST_STEPS`, the first and the last included."""
    if len(steps) <= _MOST_STEPS:
        return list(steps)
    distance = (len(steps) - 1) / (_MOST_STEPS - 1)
    return [steps[round(i * distance)] for i in range(_MOST_STEPS)]


def _key(question: str, /, **query: Any) -> str:
    """Return what the page calls a question; `keyOf` in `board.js` does the same."""
    return "&".join([question, *(f"{k}={v}" for k, v in sorted(query.items()))])


def _page(answers: dict[str, Any]) -> str:
    """Put styles, scripts and answers into the page."""
    # No text of a run can end the element that holds it.
    data = json.dumps(answers, default=str).replace("<", "\\u003c")
    element = f'<script type="application/json" id="embedded">{data}</script>'
    page = (PAGE / "index.html").read_text()
    style = (PAGE / "board.css").read_text()
    reference = '<link rel="stylesheet" href="page/board.css">'
    page = page.replace(reference, f"<style>\n{style}</style>")
    for name in SCRIPTS:
        script = (PAGE / name).read_text()
        reference = f'<script src="page/{name}"></script>'
        page = page.replace(reference, f"<script>\n{script}</script>")
    return page.replace("<!-- data -->", element)
